"""Plans, and how steps get them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

import heddle
from conftest import PLAN


@dataclass
class Rules:
    dims: dict[str, int] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    experts: list[str] = field(default_factory=list)
    layers: list[heddle.step.Flows] = field(default_factory=list)
    local: list[str] = field(default_factory=list)

    def split_dim(self, parameter: str) -> int | None:
        return self.dims.get(parameter)

    def unit(self, parameter: str) -> str | None:
        return self.units.get(parameter)


def test_plan_is_a_text(plan: heddle.Plan, tmp_path: Path) -> None:
    assert str(plan) == PLAN and plan.mesh == {"dp": 4} and not plan.automatic
    plan.save(tmp_path / "fsdp.plan")
    assert heddle.Plan.load(tmp_path / "fsdp.plan") == plan


def test_difference(plan: heddle.Plan) -> None:
    other = heddle.Plan(PLAN.replace("dp=4", "dp=8"))
    assert plan.diff(plan) == ""
    assert plan.diff(other) == "- mesh [dp=4]\n+ mesh [dp=8]\n"


def test_mistakes_have_places() -> None:
    with pytest.raises(heddle.PlanError) as caught:
        heddle.Plan('heddle plan 1\nmesh [dp=4]\nparam "w" store [tp] compute [-]\n', "my.plan")
    assert (caught.value.diagnostics[0].file, caught.value.diagnostics[0].line) == ("my.plan", 3)


def test_presets_by_axis(step: heddle.Graph) -> None:
    captured = heddle.Step(step)
    assert 'param "up.weight" store [dp,-] compute [-,-]' in str(captured.plan("dp=4"))
    replicated = captured.plan({"dp_replicate": 4})
    assert replicated.mesh == {"dp_replicate": 4} and "store [-,-]" in str(replicated)


def test_rules_split_weights(step: heddle.Graph) -> None:
    plan = heddle.Step(step).plan("dp=2,tp=2", rules=Rules({"up.weight": 0, "down.weight": 1}))
    assert 'param "up.weight" store [{tp,dp},-] compute [tp,-]' in str(plan)
    assert 'param "down.weight" store [dp,tp] compute [-,tp]' in str(plan)


def test_rules_name_units(step: heddle.Graph) -> None:
    plan = heddle.Step(step, rules=Rules(units={"up.weight": "block"})).plan("dp=4")
    assert 'param "up.weight" store [dp,-] compute [-,-] unit "block"' in str(plan)


def test_axes_without_a_preset_need_auto(step: heddle.Graph) -> None:
    with pytest.raises(heddle.PlanError, match="axis `rows` has no role"):
        heddle.Step(step).plan("rows=4")
    plan = heddle.Step(step).plan("rows=4", auto=True)
    assert plan.mesh == {"rows": 4} and not plan.automatic


def test_auto_explains_itself(step: heddle.Graph) -> None:
    captured = heddle.Step(step)
    plan = captured.plan("dp=4", auto=True)
    assert "up.weight" in plan.explain("up.weight")
    with pytest.raises(heddle.PlanError, match="no parameter `up.weigth`"):
        plan.explain("up.weigth")
    with pytest.raises(heddle.PlanError, match="auto=True"):
        captured.plan("dp=4").explain("up.weight")


def test_a_local_graph_gets_no_plan() -> None:
    local = heddle.Graph.parse("heddle 1 local\ngraph @g(%x: f32[4]) -> (%x) {\n}")
    with pytest.raises(heddle.PlanError, match="local graph"):
        heddle.Step(local).plan("dp=4")


@pytest.mark.parametrize("mesh", ["", "dp", "dp=0", "dp=4,dp=2", "dp=four"])
def test_bad_meshes(step: heddle.Graph, mesh: str) -> None:
    with pytest.raises(heddle.PlanError):
        heddle.Step(step).plan(mesh)
