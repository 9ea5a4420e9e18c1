"""The package as a whole: stubs, typing marker, public names."""

from __future__ import annotations

from pathlib import Path

import pytest

import heddle


def test_public_names_exist() -> None:
    assert sorted(heddle.__all__) == heddle.__all__
    for name in heddle.__all__:
        assert getattr(heddle, name) is not None
    assert (Path(heddle.__file__).parent / "py.typed").exists()


def test_stubs_are_those_of_the_module() -> None:
    stubgen = pytest.importorskip("nanobind.stubgen")
    from heddle import _core

    generator = stubgen.StubGen(_core)
    generator.put(_core)
    stubs = Path(heddle.__file__).parent / "_core.pyi"
    assert stubs.read_text() == generator.get(), "`make docs` writes python/heddle/_core.pyi"
