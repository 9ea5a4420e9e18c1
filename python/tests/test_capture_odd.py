"""Capture of modules that use unusual parts of torch."""

# ruff: noqa: E402

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F
from torch import Tensor, nn

from heddle.capturing import Spec, trace_step
from modules import Mixtures, square
from step_checks import (
    assert_eager_bits,
)

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


# Odd modules.


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor) -> Tensor:
        context.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = context.saved_tensors
        return grad * weight, (grad * x).sum(0)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = Scale.apply(self.up(self.up(x)), self.scale)
        return out


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_autograd_functions_and_modules_called_twice(dtype: torch.dtype | None) -> None:
    if dtype is None:
        assert_eager_bits(Scaled(), torch.randn(3, 4), square)
        return
    captured = trace_step(Scaled(), Spec((3, 4)), loss=square, param_dtype=dtype)
    casts = [n for n in captured.graph_module.graph.nodes if "_to_copy" in str(n.target)]
    # Three parameters and the input, and the gradients back; the one called twice is cast once.
    assert len(casts) == 7


def test_autocast() -> None:
    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(batch).float().square().mean()

    assert_eager_bits(Scaled(), torch.randn(3, 4), loss)


def test_gradients_of_gradients() -> None:
    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        x = batch.detach().requires_grad_()
        y = model(x).tanh().sum()
        (grad,) = torch.autograd.grad(y, x, create_graph=True)
        return y + grad.square().sum()

    assert_eager_bits(Scaled(), torch.randn(3, 4), loss)


def test_compiled_submodules_are_traced() -> None:
    model = nn.Sequential(nn.Linear(4, 4), torch.compile(nn.Linear(4, 2)))

    def plain(model: nn.Module, batch: Tensor) -> Tensor:
        return square(model, batch)

    captured = trace_step(model, Spec((3, 4)), loss=plain)
    assert captured.calls() > 0 and len(captured.parameters) == 4


def test_parametrizations() -> None:
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.Linear(4, 1))
    assert_eager_bits(model, torch.randn(3, 4), square)


def test_parameters_of_other_modules() -> None:
    class Borrowing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(8, 4)

        def forward(self, ids: Tensor) -> Tensor:
            return F.linear(self.table(ids), self.table.weight)

    ids = torch.randint(0, 8, (2, 3))
    assert_eager_bits(Borrowing(), ids, square)
    captured = trace_step(Borrowing(), ids, loss=square, param_dtype=torch.bfloat16)
    (product,) = [
        n
        for n in captured.graph_module.graph.nodes
        if str(n.target) == "aten.mm.default" and n.meta["heddle_phase"] == "fwd"
    ]
    assert product.meta["val"].dtype == torch.bfloat16


def test_keyword_arguments() -> None:
    class Optional(nn.Linear):
        def forward(self, input: Tensor, negate: bool = False) -> Tensor:
            out = super().forward(input).sum()
            return -out if negate else out

    model = Optional(4, 2)
    plain = trace_step(model, {"input": Spec((3, 4))})
    negated = trace_step(model, {"input": Spec((3, 4))}, kwargs={"negate": True})
    assert "neg" in negated.graph_module.code and "neg" not in plain.graph_module.code


def test_losses_of_one_element() -> None:
    assert_eager_bits(nn.Linear(4, 1), torch.randn(1, 4), lambda m, b: m(b))


def test_grouped_products_in_f32() -> None:
    assert_eager_bits(Mixtures(), torch.randn(3, 5, 16), square)


def test_inference_mode() -> None:
    model = Scaled()
    with torch.inference_mode():
        captured = trace_step(model, Spec((3, 4)), loss=square)
    assert sum(one["role"] == "grad" for one in captured.outputs) == 3


def test_tensors_of_neither_model_nor_batch() -> None:
    mask = torch.ones(3, 4)
    captured = trace_step(Scaled(), Spec((3, 4)), loss=lambda m, b: (m(b) * mask).sum())
    (remark,) = captured.remarks
    assert remark.startswith("the step holds a tensor of neither model nor batch")
    assert list(captured.constants) == ["constant.0"]


class Profiled(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        with torch.profiler.record_function("linear"):
            return super().forward(input)


def test_profiling_leaves_no_trace() -> None:
    for model in (Profiled(4, 4), nn.DataParallel(nn.Linear(4, 4))):
        captured = assert_eager_bits(model, torch.randn(4, 4), square)
        assert "profiler" not in captured.graph_module.code


class Shifts(nn.Module):
    """Writes in place, so the step is traced twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).add_(1))


def test_scopes_of_backward_after_two_traces() -> None:
    captured = trace_step(Shifts(), torch.randn(4, 4), loss=square)
    nodes = [n for n in captured.graph_module.graph.nodes if n.op == "call_function"]
    products = [n for n in nodes if n.target is torch.ops.aten.mm.default]
    scopes = {n.meta["heddle_scope"] for n in products if n.meta["heddle_phase"] == "bwd"}
    assert scopes == {"first", "second"}


def test_inverse_permutations_are_sorts() -> None:
    def loss(model: nn.Module, x: Tensor) -> Tensor:
        order = torch.sort(x[:, 0])[1]
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(4)
        return model(x[order])[inverse].square().sum()

    captured = assert_eager_bits(nn.Linear(4, 4), torch.randn(4, 4), loss)
    code = captured.graph_module.code
    assert code.count("aten.sort") == 2 and "arange" not in code
