"""Programs, simulations and searches; outputs are those of the command line."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path

import pytest

import heddle
from conftest import PLAN, STEP


def run(program: Path, *arguments: str) -> str:
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def test_parallelize_as_the_command_line(
    step: heddle.Graph, plan: heddle.Plan, program_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "step.hd").write_text(STEP)
    (tmp_path / "plan").write_text(PLAN)
    printed = run(
        program_file,
        "parallelize",
        str(tmp_path / "step.hd"),
        f"--plan={tmp_path}/plan",
        "--compile.pipeline=fsdp",
    )
    assert str(heddle.Program(step, plan).graph) == printed


def test_simulation_as_the_command_line(
    step: heddle.Graph, plan: heddle.Plan, program_file: Path, tmp_path: Path
) -> None:
    program = heddle.Program(step, plan)
    program.graph.save(tmp_path / "step.hd")
    simulation = program.simulate()
    assert simulation.report == json.loads(
        run(program_file, "sim", f"{tmp_path}/step.hd", "--json")
    )
    assert str(simulation) == run(program_file, "sim", f"{tmp_path}/step.hd")
    assert simulation.timeline() == run(program_file, "sim", f"{tmp_path}/step.hd", "--timeline")
    simulation.trace(tmp_path / "a.json")
    run(program_file, "sim", f"{tmp_path}/step.hd", f"--trace={tmp_path}/b.json")
    assert (tmp_path / "a.json").read_text() == (tmp_path / "b.json").read_text()


def test_pipeline_as_the_command_line(
    step: heddle.Graph, program_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "step.hd").write_text(STEP)
    text = "clean, repeat{dce, cse}"
    printed = run(program_file, "opt", str(tmp_path / "step.hd"), f"--pipeline={text}")
    assert str(heddle.run_pipeline(step, text)) == printed


def test_passes(step: heddle.Graph, plan: heddle.Plan) -> None:
    passes = heddle.Program(step, plan, pipeline="clean, bucket-by-unit").passes
    names = [row["name"] for row in passes]
    assert "propagate" in names and names[-1] == "bucket-by-unit"
    assert passes[-1]["launches"] > 0 and passes[-1]["peak_memory"] > 0
    assert "bucket-by-unit" in str(passes) and "<table>" in passes._repr_html_()


def test_figures(step: heddle.Graph, plan: heddle.Plan) -> None:
    simulation = heddle.Program(step, plan, cluster="h100-8x").simulate()
    assert 0 < simulation.exposed <= simulation.step_time
    assert simulation.lower_bound <= simulation.step_time
    assert simulation.memory["peak_bytes"] >= 1024 * 4 // 4
    assert {row["kind"] for row in simulation.collectives} >= {"all_gather", "reduce_scatter"}
    assert "iframe" in simulation._repr_html_() and "step" in str(simulation)
    slower = heddle.Program(step, plan, cluster="a100-8x").simulate()
    assert slower.report["cluster"] == "a100-8x"


def test_pages(step: heddle.Graph, plan: heddle.Plan, tmp_path: Path) -> None:
    before = heddle.Program(step, plan, pipeline="none")
    after = heddle.Program(step, plan, pipeline="fsdp").simulate()
    comparison = after.compare(before)
    assert comparison.saved == comparison.before.step_time - comparison.after.step_time
    assert "fsdp" in str(comparison)
    comparison.save(tmp_path / "both.html")
    after.save(tmp_path / "one.html")
    assert (tmp_path / "both.html").stat().st_size > (tmp_path / "one.html").stat().st_size > 10000


def test_a_global_graph_needs_a_plan(step: heddle.Graph) -> None:
    with pytest.raises(heddle.PassError, match="needs a plan"):
        heddle.Program(step)


def test_a_plan_states_its_cluster(step: heddle.Graph) -> None:
    plan = heddle.Plan(PLAN + 'cluster "a100-8x"\n')
    assert heddle.Program(step, plan).cluster == "a100-8x"
    with pytest.raises(heddle.PlanError, match="contradicts the plan"):
        heddle.Program(step, plan, cluster="h100-8x")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(pipeline="fsdq"), "unknown|not a pass"),
        (dict(cluster="moon"), "moon"),
        (dict(memory="1 B"), "brings the step down to 1 B"),
        (dict(memory="some"), "some"),
    ],
)
def test_bad_settings(
    step: heddle.Graph, plan: heddle.Plan, settings: dict[str, str], message: str
) -> None:
    with pytest.raises(heddle.Error, match=message):
        heddle.Program(step, plan, **settings)  # type: ignore[arg-type]


def test_search(step: heddle.Graph) -> None:
    found = heddle.search(step, devices=4, cluster="h100-8x")
    assert found.plan.mesh and found.tried >= 1
    assert found.simulate().step_time == found.plans[0]["step_time"]
    times = [row["step_time"] for row in found.plans]
    assert times == sorted(times)
    with pytest.raises(heddle.PlanError, match="fits into 1.00 KiB"):
        heddle.search(step, devices=4, memory="1KiB")
    with pytest.raises(heddle.PlanError, match="do not divide"):
        heddle.search(step, devices=3)


def test_calls_run_side_by_side(step: heddle.Graph, plan: heddle.Plan) -> None:
    """Long calls release the interpreter's lock, and threads do not disturb each other."""
    expected = str(heddle.Program(step, plan).graph)
    found: list[str] = []

    def work() -> None:
        found.append(str(heddle.Program(step, plan).graph))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4
