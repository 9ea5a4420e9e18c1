"""Experts that ranks share: of transformers' models, and of a module with rules of its own."""

# ruff: noqa: E402

from __future__ import annotations

import os
from functools import cache
from typing import Any

import pytest

import heddle

torch = pytest.importorskip("torch")

from heddle._from_fx import read_fx_text
from heddle._parts import Place
from heddle._to_fx import write_fx
from modules import Mixtures, square
from test_hf import MODELS, tokens
from test_hf_fx import NoGroups

pytestmark = [pytest.mark.torch, pytest.mark.hf]
EXPERTS = ["qwen3_moe", "mixtral", "deepseek_v3"]
RULES = heddle.Rules(experts=["blocks.*.experts.*"], local=["blocks.*"], units=["blocks.*"])


@cache
def grouped(name: str) -> heddle.Step:
    model = MODELS[name]().eval()
    model.set_experts_implementation("grouped_mm")
    return heddle.capture(model, tokens(rows=4))


def mixture() -> tuple[heddle.Step, Any]:
    torch.manual_seed(0)
    batch = {"x": torch.randn(8, 6, 16)}
    step = heddle.capture(Mixtures(8), batch, loss=lambda m, b: square(m, b["x"]))
    return step, batch


def assert_links(step: heddle.Step, plan: heddle.Plan, batch: Any, processes: bool = False) -> None:
    program = step.compile(plan)
    ops = {node.op for node in program.graph.nodes}
    assert ("ep" in plan.mesh) == ({"comm.dispatch", "comm.combine"} <= ops)
    pytest.importorskip("heddle._torch")
    links = heddle.verify(program, batch, processes=processes).links
    assert [link.result for link in links[::2]] == ["same bits", "same bits"]
    assert float(links[1].result) < 1e-5
    if processes:
        assert links[3].result == "same bits"


MESHES = ["dp=4", "ep=2", "dp=2,ep=2", "ep=2,tp=2"]
SOAK = "HEDDLE_SOAK" in os.environ


@pytest.mark.parametrize("name", EXPERTS)
def test_models_of_transformers(name: str) -> None:
    step, batch = grouped(name), tokens(rows=4)
    for mesh in MESHES if SOAK else MESHES[2:] if name == "mixtral" else MESHES[2:3]:
        plan = step.plan(mesh)
        assert 'mlp.experts" local' in str(plan)
        assert_links(step, plan, batch)


def test_data_parallel_ranks_route_their_own_tokens() -> None:
    step, batch = grouped("qwen3_moe"), tokens(rows=4)
    program = step.compile(step.plan("dp=4"), pipeline="clean")
    # Weights and gradients travel, and no tokens.
    moves = {
        node.attrs["why"]
        for node in program.graph.nodes
        if node.op.startswith("comm.") and ".mlp" in node.scope and "why" in node.attrs
    }
    assert moves == {"unshard", "grad"}
    assert_links(step, step.plan("dp=4"), batch)


@pytest.mark.parametrize("mesh", ["ep=4", "dp_replicate=2,ep=2"])
def test_a_module_with_rules(mesh: str) -> None:
    step, batch = mixture()
    assert_links(step, step.plan(mesh, rules=RULES), batch)


@pytest.mark.processes
@pytest.mark.parametrize("rows", ["", "expert-rows bound\n"] if SOAK else [""])
def test_rows_travel_between_processes(rows: str) -> None:
    step, batch = mixture()
    plan = heddle.Plan(str(step.plan("dp=2,ep=2", rules=RULES)) + rows)
    assert_links(step, plan, batch, processes=True)


@pytest.mark.parametrize("rows", ["", "expert-rows bound\n"])
def test_the_fx_graph_reads_back(rows: str) -> None:
    step, _ = mixture()
    plan = heddle.Plan(str(step.plan("dp=2,ep=2", rules=RULES)) + rows)
    packed = step.compile(plan)._packed()
    module = write_fx(packed, Place.of(packed.mesh, 3), NoGroups(packed.mesh), "cpu")  # type: ignore[arg-type]
    assert str(read_fx_text(module)) == str(packed)


def test_experts_without_grouped_products_are_refused() -> None:
    pytest.importorskip("transformers")
    step = heddle.capture(MODELS["mixtral"]().eval(), tokens())
    with pytest.raises(heddle.PlanError, match="no rule matches a module that routes") as caught:
        step.plan("dp=2,ep=2")
    assert 'set_experts_implementation("grouped_mm")' in str(caught.value)


def test_models_without_experts_are_refused() -> None:
    step = heddle.capture(torch.nn.Linear(4, 1), torch.zeros(4, 4), loss=lambda m, x: m(x).sum())
    with pytest.raises(heddle.PlanError, match="no rule matches a stack of experts"):
        step.plan("dp=2,ep=2")


def test_experts_that_ranks_do_not_divide_are_refused() -> None:
    step, _ = mixture()
    with pytest.raises(heddle.PlanError, match="4 experts, which cannot be divided evenly among 3"):
        step.plan("ep=3", rules=RULES)


def test_the_solver_does_not_share_experts() -> None:
    step, _ = mixture()
    for mesh, auto in (("dp=2,ep=2", True), ("dp=2,ep=2,tp=2", False)):
        with pytest.raises(heddle.PlanError, match="`auto` cannot share experts over axis `ep`"):
            step.plan(mesh, rules=RULES, auto=auto)
