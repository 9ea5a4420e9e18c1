"""Hugging Face architectures on ranks: verified links, and FX graphs that read back."""

# ruff: noqa: E402

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import heddle
from heddle._from_fx import read_fx_text
from heddle._parts import Place, same_bits
from heddle._to_fx import write_fx
from heddle.testing import random_inputs, run_ranks
from test_hf import MODELS, tokens

pytestmark = [pytest.mark.torch, pytest.mark.hf]


class NoGroups:
    """Names of groups, for graphs that are read and not run."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self._sizes = sizes

    def find(self, over: Any, stream: int) -> Any:
        size = 1
        for axis in over:
            size *= self._sizes[axis]
        return SimpleNamespace(size=lambda: size, group_name=f"{'-'.join(over)}-{stream}")


def program_of(name: str, mesh: str) -> tuple[heddle.Program, Any]:
    batch = tokens(rows=4)
    # Without dropout, for which ranks draw other numbers than one device.
    step = heddle.capture(MODELS[name]().eval(), batch)
    return step.compile(step.plan(mesh)), batch


@pytest.mark.parametrize("name", list(MODELS))
def test_the_fx_graph_reads_back(name: str) -> None:
    program, _ = program_of(name, "dp=2,tp=2")
    packed = program._packed()
    sizes = program.graph.mesh
    module = write_fx(packed, Place.of(sizes, 3), NoGroups(sizes), "cpu")  # type: ignore[arg-type]
    assert str(read_fx_text(module)) == str(packed)


@pytest.mark.parametrize("name", list(MODELS))
def test_links(name: str) -> None:
    pytest.importorskip("heddle._torch")
    program, batch = program_of(name, "dp=4")
    links = heddle.verify(program, batch).links
    assert [link.result for link in links[::2]] == ["same bits", "same bits"]
    # Packed collectives have the same bits, in the order of any reducer.
    packed = program._packed()
    inputs = random_inputs(packed)
    for value, number in zip(packed.inputs, range(len(packed.inputs)), strict=True):
        if value.role == "batch":
            for rank in inputs:
                rank[number].clamp_(3)
    a = run_ranks(program.graph, inputs, reducer="gloo")
    b = run_ranks(packed, inputs, reducer="gloo")
    assert all(
        same_bits(x, y)
        for one, other in zip(a, b, strict=True)
        for x, y in zip(one, other, strict=True)
    )
