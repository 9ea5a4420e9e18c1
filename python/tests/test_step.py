"""From a module to a plan: capture, hand-over to the compiler, plan, simulation."""

# ruff: noqa: E402
from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("heddle._core")

import heddle
from heddle.capturing import AdamW, Spec, capture
from heddle.rules import Rules
from modules import NanoGPT, gpt_loss

pytestmark = pytest.mark.torch

BATCH = {"x": Spec((8, 16), torch.int64), "y": Spec((8, 16), torch.int64)}


def gpt(**options: Any) -> heddle.Step:
    return capture(NanoGPT(), BATCH, loss=gpt_loss, **options)


def test_inputs_of_the_graph() -> None:
    step = gpt()
    inputs = step.graph.inputs
    labels = [value.label for value in inputs if value.role == "param"]
    assert labels == [one.name for one in step.parameters]
    assert [value.label for value in inputs if value.role == "batch"] == ["x", "y"]
    units = {value.label: value.unit for value in inputs}
    assert units["transformer.h.1.mlp.0.weight"] == "transformer.h.1"
    assert step.graph.stats()["opaque"] == {}
    assert heddle.Graph.parse(str(step.graph)) == step.graph


@pytest.mark.parametrize("mesh", ["dp=2", "dp=4", "dp=2,tp=2"])
def test_plans(mesh: str) -> None:
    rules = Rules(columns=["**.mlp.0"], rows=["**.mlp.2"], units=["transformer.h.*"])
    step = gpt()
    plan = step.plan(mesh, rules=rules)
    split = 'param "transformer.h.0.mlp.0.weight"' in str(plan) or "tp" not in mesh
    assert split
    assert step.compile(plan, cluster="h100-8x").simulate().step_time > 0


def test_optimizer_in_the_graph() -> None:
    graph = gpt(optimizer=AdamW(max_norm=1.0)).graph
    ops = [node.op for node in graph.nodes]
    parameters = sum(value.role == "param" for value in graph.inputs)
    assert ops.count("aten._fused_adamw.tensor_lr") == parameters
    assert ops.count("heddle.squared_norm") == 1
    updates = [one for one in graph.outputs if one.role == "update"]
    assert len(updates) == 3 * parameters


def test_buffers_are_outputs() -> None:
    from modules import Norms

    step = capture(Norms(), Spec((8, 3, 8, 8)), loss=lambda m, b: m(b).mean())
    updates = [one.target.name for one in step.graph.outputs if one.role == "update"]
    assert len(updates) == 5
