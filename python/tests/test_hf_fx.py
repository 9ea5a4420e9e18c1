"""Hugging Face architectures on ranks: verified links, and FX graphs that read back."""

# ruff: noqa: E402

from __future__ import annotations

import os
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch.overrides import TorchFunctionMode

import heddle
from heddle._from_fx import read_fx_text
from heddle._parts import Place, same_bits
from heddle._to_fx import write_fx
from heddle.testing import random_inputs, run_ranks
from modules import Encoder, NanoGPT, SelectiveScan, ViT, gpt_loss, square, text_batch
from test_hf import MODELS, tokens

SOAK = "HEDDLE_SOAK" in os.environ
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


@cache
def step_of(name: str, rows: int, dtype: Any) -> heddle.Step:
    # Without dropout, for which ranks draw other numbers than one device.
    return heddle.capture(MODELS[name]().eval().to(dtype), tokens(rows))


# Three ranks cut nothing evenly: 5 rows, 32 columns, 128 tokens.
MESHES = ["dp=2", "dp=4", "dp=2,tp=2", "dp=3"]


def rows_of(mesh: str) -> int:
    """FX graphs do not move 5 rows on `dp=2,tp=2`: their parts need padding between them."""
    return 4 if mesh == "dp=4" or (SOAK and mesh == "dp=2,tp=2") else 5


def program_of(name: str, mesh: str, dtype: Any) -> tuple[heddle.Program, Any]:
    rows = rows_of(mesh)
    step = step_of(name, rows, dtype)
    assert not [remark for remark in step.remarks if "opaque" in remark]
    return step.compile(step.plan(mesh)), tokens(rows)


class Doubles(TorchFunctionMode):
    """Functions compute in f64 where the code of models asks for f32."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def wide(value: Any) -> Any:
            return torch.float64 if value is torch.float32 else value

        if func is torch.Tensor.float:
            func = torch.Tensor.double
        return func(*map(wide, args), **{k: wide(v) for k, v in (kwargs or {}).items()})


@pytest.fixture
def doubles() -> Any:
    torch.set_default_dtype(torch.float64)
    try:
        with Doubles():
            yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.fixture
def dtype(request: pytest.FixtureRequest) -> Any:
    """In a short run all tests of a model share one captured step, of f64."""
    if SOAK:
        return torch.float32
    request.getfixturevalue("doubles")
    return torch.float64


@pytest.mark.parametrize("mesh", ["dp=2,tp=2"] if SOAK else ["dp=3", "tp=2"])
@pytest.mark.parametrize("name", list(MODELS))
def test_the_fx_graph_reads_back(name: str, mesh: str, dtype: Any) -> None:
    program, _ = program_of(name, mesh, dtype)
    packed = program._packed()
    sizes = program.graph.mesh
    module = write_fx(packed, Place.of(sizes, 1), NoGroups(sizes), "cpu")  # type: ignore[arg-type]
    assert str(read_fx_text(module)) == str(packed)


@pytest.mark.parametrize("name", list(MODELS))
def test_links(name: str, dtype: Any) -> None:
    pytest.importorskip("heddle._torch")
    program, batch = program_of(name, "dp=4" if SOAK else "dp=3", dtype)
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


def assert_ranks_agree(step: heddle.Step, mesh: str, batch: Any, *, processes: bool) -> None:
    """In f64 nothing but the order of sums differs; FX processes have the bits of ranks."""
    types = {value.dtype for node in step.graph.nodes for value in node.results}
    assert "f64" in types and not types & {"f32", "bf16", "f16"}
    links = heddle.verify(step.compile(step.plan(mesh)), batch, processes=processes).links
    fx = "same bits" if processes else "not compared"
    assert [links[i].result for i in (0, 2, 3)] == ["same bits", "same bits", fx]
    assert links[1].result == "same bits" or float(links[1].result) < 1e-12


@pytest.mark.parametrize("mesh", MESHES if SOAK else MESHES[2:])
@pytest.mark.parametrize("name", list(MODELS))
def test_ranks_agree(name: str, mesh: str, doubles: None) -> None:
    pytest.importorskip("heddle._torch")
    rows = rows_of(mesh)
    step = step_of(name, rows, torch.float64)
    assert_ranks_agree(step, mesh, tokens(rows), processes=SOAK)


def images() -> Any:
    return dict(images=torch.randn(5, 3, 16, 16))


def vectors() -> Any:
    return dict(x=torch.randn(5, 6, 16))


def sentences() -> Any:
    return dict(x=torch.randn(5, 6, 32))


def square_of(model: Any, batch: Any) -> Any:
    return square(model, next(iter(batch.values())))


OTHERS: dict[str, Any] = {
    "vit": (ViT, images, square_of),
    "nanogpt": (NanoGPT, text_batch, gpt_loss),
    "encoder": (Encoder, sentences, square_of),
    "scan": (SelectiveScan, vectors, square_of),
}


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", list(OTHERS))
def test_ranks_of_other_models_agree(name: str, mesh: str, doubles: None) -> None:
    pytest.importorskip("heddle._torch")
    make, batch_of, loss = OTHERS[name]
    torch.manual_seed(0)
    batch = batch_of()
    step = heddle.capture(make().eval().double(), batch, loss=loss)
    assert_ranks_agree(step, mesh, batch, processes=SOAK or (name, mesh) == ("encoder", "dp=3"))
