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


def test_without_rules_the_solver_places_tensor_parallelism() -> None:
    with torch.device("meta"):
        model = torch.nn.Sequential(
            torch.nn.Linear(8192, 32768), torch.nn.GELU(), torch.nn.Linear(32768, 8192)
        ).to(torch.bfloat16)
    batch = Spec((16, 512, 8192), torch.bfloat16)
    step = capture(model, batch, loss=lambda m, b: m(b).square().mean())
    step.plan("dp=4")
    step.plan("dp=4,tp=1")
    step.plan("dp=2,tp=4", rules=Rules(columns=["0"]))
    assert step.remarks == []
    plan = step.plan("dp=2,tp=4")
    assert step.remarks == ["no rule splits a weight over `tp`, so the solver placed the step"]
    assert "0.weight" in plan.explain("0.weight")
    assert any("tp" in line.partition(" compute ")[2] for line in str(plan).splitlines())


def test_pending_sums_are_added_once() -> None:
    """The gradients of a module's input, of several products, are one sum over `tp`."""

    class Gated(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.up, self.down = (torch.nn.Linear(16, 16, bias=False) for _ in range(3))

        def forward(self, x: Any) -> Any:
            return self.down(self.gate(x).sigmoid() * self.up(x))

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(16))
            self.mlp = Gated()

        def forward(self, x: Any) -> Any:
            norm = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
            return x + self.mlp(norm * self.weight)

    model = torch.nn.Sequential(*(Layer() for _ in range(3)))
    rules = Rules(columns=["**.gate", "**.up"], rows=["**.down"], units=["*"])
    step = capture(model, Spec((4, 8, 16)), loss=lambda m, b: m(b).square().mean())
    graph = step.compile(step.plan("dp=2,tp=2", rules=rules)).graph
    sums = [n for n in graph.nodes if n.op == "comm.all_reduce" and n.attrs["over"] == ["tp"]]
    # One for each module and direction; no gradient of the batch is computed.
    assert [len([n for n in sums if n.phase == phase]) for phase in ("fwd", "bwd")] == [3, 3]


def test_dropout_of_a_rank_draws_for_its_rows() -> None:
    step = capture(NanoGPT(dropout=0.1, flash=False), BATCH, loss=gpt_loss)
    graph = step.compile(step.plan("dp=4")).graph
    draws = [node for node in graph.nodes if node.op == "aten.native_dropout"]
    assert len(draws) == 7 and all(node.results[0].shape[0] == 2 for node in draws)
    gathered = [n for n in graph.nodes if n.op == "comm.all_gather" and n.attrs["why"] != "unshard"]
    assert gathered == []


def test_the_found_program_runs() -> None:
    model = torch.nn.Linear(4, 1)
    step = capture(model, Spec((8, 4)), loss=lambda m, b: m(b).sum(), optimizer=AdamW(lr=0.5))
    program = heddle.search(step, devices=1).program
    before = model.weight.clone()
    run = program.start(weights=model)
    run(torch.ones(8, 4))
    # The step size is that of the capture.
    assert torch.allclose(run.whole("weight"), before - 0.5, atol=1e-2)


def test_numbers_in_a_batch_are_not_split() -> None:
    def loss(model: Any, batch: Any) -> Any:
        return (model(batch["x"]) * batch["scale"]).sum()

    batch = {"x": torch.randn(4, 2), "scale": torch.tensor(2.0)}
    step = heddle.capture(torch.nn.Linear(2, 1), batch, loss=loss)
    plan = step.plan("dp=2")
    assert 'input "x" [dp]' in str(plan) and "scale" not in str(plan)
    assert step.compile(plan).graph.value("scale").shape == ()
