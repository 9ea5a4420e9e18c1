"""Modules and batches of unusual forms, on two ranks and with tensor parallelism, against eager."""

# ruff: noqa: E402

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import heddle

torch = pytest.importorskip("torch")
pytest.importorskip("heddle._torch")

import torch.nn.functional as F
from torch import Tensor, nn

pytestmark = pytest.mark.torch
Case = tuple[nn.Module, Any, Callable[[nn.Module, Any], Tensor]]


def square(model: nn.Module, batch: Any) -> Tensor:
    out: Tensor = model(batch["x"]).square().mean()
    return out


class Averages(nn.Module):
    """Buffers that the step writes to, and reads afterwards."""

    average: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 8)
        self.register_buffer("average", torch.zeros(8))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(x)
        with torch.no_grad():
            self.average.mul_(0.9).add_(y.mean(0), alpha=0.1)
            self.count += 1
        out: Tensor = y * (1 + self.average)
        return out


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.up = nn.Linear(8, 8)
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.alias = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.up(self.embed(x)))
        return out


class Strided(nn.Module):
    """A parameter that is not contiguous, and one without dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 6).t())
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight * self.scale.exp()


def averages() -> Case:
    return Averages(), {"x": torch.randn(4, 8)}, square


def tied() -> Case:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        return F.cross_entropy(model(batch["x"]).flatten(0, 1), batch["y"].flatten())

    return Tied(), {key: torch.randint(0, 16, (4, 6)) for key in "xy"}, loss


def strided() -> Case:
    return Strided(), {"x": torch.randn(4, 6)}, square


def bias_before_a_norm() -> Case:
    """The gradient of the bias is zero, but for rounding errors."""
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    return model, {"x": torch.randn(4, 8)}, square


def images() -> Case:
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(32, 4)), {"x": torch.randn(4, 3, 4, 4)}, square


def positions_last() -> Case:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        return F.cross_entropy(model(batch["x"]).transpose(1, 2), batch["y"])

    batch = {"x": torch.randn(4, 6, 8), "y": torch.randint(0, 16, (4, 6))}
    return nn.Linear(8, 16), batch, loss


def constants() -> Case:
    mask = torch.ones(6, 6, dtype=torch.bool).tril()

    def loss(model: nn.Module, batch: Any) -> Tensor:
        q, k, v = (y[:, None] for y in model(batch["x"]).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).square().mean()

    return nn.Linear(8, 24), {"x": torch.randn(4, 6, 8)}, loss


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(4, 8, batch_first=True, bidirectional=True)
        self.head = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.cells(x)[0])
        return out


def recurrent() -> Case:
    return Recurrent(), {"x": torch.randn(4, 3, 4)}, square


CASES = [averages, tied, strided, bias_before_a_norm, images, positions_last, constants]


def made(case: Callable[[], Case], optimizer: Any = None) -> tuple[Case, heddle.Step]:
    torch.manual_seed(0)
    model, batch, loss = case()
    return (model, batch, loss), heddle.capture(model, batch, loss=loss, optimizer=optimizer)


@pytest.mark.parametrize("mesh", ["dp=2", "dp=3", "dp=2,tp=2"])
@pytest.mark.parametrize("case", [*CASES, recurrent])
def test_links(case: Callable[[], Case], mesh: str) -> None:
    (_, batch, _), step = made(case)
    rules = heddle.Rules(columns=["0", "up"], rows=["2"])
    links = heddle.verify(step.compile(step.plan(mesh, rules=rules)), batch).links
    assert [link.result for link in links[:3:2]] == ["same bits", "same bits"]


@pytest.mark.parametrize("case", CASES)
def test_the_optimizer_in_the_graph(case: Callable[[], Case]) -> None:
    (_, batch, _), step = made(case, heddle.AdamW(max_norm=1.0))
    heddle.verify(step.compile(step.plan("dp=2")), batch)


@pytest.mark.parametrize("case", CASES)
def test_training_has_eager_bits(case: Callable[[], Case]) -> None:
    (model, batch, loss), step = made(case)
    eager = copy.deepcopy(model)
    for parameter in eager.parameters():
        # As runs keep them.
        parameter.data = parameter.data.contiguous()
    run = step.compile(step.plan("dp=1")).start(weights=model)
    ours = torch.optim.SGD(run.parameters(), lr=0.1, momentum=0.9)
    theirs = torch.optim.SGD(eager.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        value = loss(eager, batch)
        value.backward()
        assert torch.equal(run(batch), value.detach())
        for optimizer in (ours, theirs):
            optimizer.step()
            optimizer.zero_grad()
    for name, value in [*eager.named_parameters(), *eager.named_buffers()]:
        assert torch.equal(run.whole(name), value), name
