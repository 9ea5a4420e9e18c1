"""Runs the examples of all docstrings, those of the extension module included."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

import heddle


def documented() -> Iterator[tuple[str, str]]:
    seen = set()
    for module in ["heddle", *(f"heddle.{m.name}" for m in pkgutil.iter_modules(heddle.__path__))]:
        loaded = importlib.import_module(module)
        yield module, loaded.__doc__ or ""
        for name, item in vars(loaded).items():
            if name.startswith("_") or not str(getattr(item, "__module__", "")).startswith(
                "heddle"
            ):
                continue
            if id(item) in seen:
                continue
            seen.add(id(item))
            yield f"{module}.{name}", getattr(item, "__doc__", None) or ""
            for member, value in vars(item).items() if inspect.isclass(item) else ():
                if not member.startswith("_"):
                    yield f"{module}.{name}.{member}", getattr(value, "__doc__", None) or ""


EXAMPLES = [(name, text) for name, text in documented() if ">>>" in text]


@pytest.mark.parametrize(("name", "text"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_example(name: str, text: str) -> None:
    parsed = doctest.DocTestParser().get_doctest(text, {"heddle": heddle}, name, None, 0)
    if any("import torch" in example.source for example in parsed.examples):
        pytest.importorskip("torch")
    if any(call in text for call in ("run_ranks(", "assert_same_bits(")):
        pytest.importorskip("heddle._torch")
    output: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(parsed, out=output.append)
    assert not runner.failures, "".join(output)


def test_every_public_name_has_an_example() -> None:
    with_example = {name.removeprefix("heddle._core.").rsplit(".", 1)[-1] for name, _ in EXAMPLES}
    assert set(heddle.__all__) <= with_example
    for module in pkgutil.iter_modules(heddle.__path__):
        if not module.name.startswith("_"):
            names = importlib.import_module(f"heddle.{module.name}").__all__
            assert set(names) <= with_example, module.name
