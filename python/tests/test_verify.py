"""heddle.verify holds for correct programs, and catches seeded faults in every stage."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import heddle

torch = pytest.importorskip("torch")
pytest.importorskip("heddle._torch")

from heddle import verifying  # noqa: E402
from modules import NanoGPT, gpt_loss  # noqa: E402
from test_to_fx import Uneven, uneven_loss  # noqa: E402
from test_variants import averages  # noqa: E402

pytestmark = pytest.mark.torch


def batch_of() -> dict[str, Any]:
    torch.manual_seed(1)
    return {"x": torch.randint(0, 11, (8, 6)), "y": torch.randint(0, 7, (8, 6))}


def step_of(**options: Any) -> heddle.Step:
    torch.manual_seed(0)
    return heddle.capture(Uneven(), batch_of(), loss=uneven_loss, **options)


def test_every_link_holds() -> None:
    found = heddle.verify(step_of().compile(step_of().plan("dp=4")), batch_of())
    assert [link.result for link in found.links[::2]] == ["same bits", "same bits"]
    assert float(found.links[1].result) < 1e-5
    assert found.links[0].detail == "loss, 9 gradients"
    assert found.links[2].detail == "4 ranks, 40 tensors"
    assert found.links[3].result == "not compared"
    assert "eager = captured" in repr(found)


def test_tensor_parallelism_and_the_optimizer() -> None:
    torch.manual_seed(0)
    batch = {key: torch.randint(0, 64, (4, 16)) for key in ("x", "y")}
    step = heddle.capture(NanoGPT(), batch, loss=gpt_loss, optimizer=heddle.AdamW(max_norm=1.0))
    rules = heddle.Rules(columns=["**.mlp.0"], rows=["**.mlp.2"])
    links = heddle.verify(step.compile(step.plan("dp=2,tp=2", rules=rules)), batch).links
    assert links[0].result == links[2].result == "same bits"


def test_the_coarsest_type_sets_the_limit() -> None:
    step = step_of(param_dtype=torch.bfloat16)
    program = step.compile(step.plan("dp=4"))
    links = heddle.verify(program, batch_of()).links
    assert 1e-4 < float(links[1].result) < 5e-2 and links[2].result == "same bits"


@pytest.mark.parametrize("weighted", [False, True])
def test_a_mean_over_rows_is_a_sum_over_their_weight(weighted: bool) -> None:
    weight = torch.rand(7) if weighted else None

    def loss(model: Any, batch: dict[str, Any]) -> Any:
        scores = model(batch["x"]).flatten(0, 1)
        return torch.nn.functional.cross_entropy(scores, batch["y"].flatten(), weight)

    batch = batch_of()
    batch["y"][:3] = -100  # The rows of one rank and a half do not count.
    torch.manual_seed(0)
    step = heddle.capture(Uneven(), batch, loss=loss)
    program = step.compile(step.plan("dp=4"))
    links = heddle.verify(program, batch).links
    assert [link.result for link in links[::2]] == ["same bits", "same bits"]
    # No rank has the scores of others, only sums.
    kinds = {node.op for node in program.graph.nodes if node.attrs.get("why") == "tensor"}
    assert kinds == {"comm.all_reduce"}


@pytest.mark.parametrize("memory", ["", "1GiB"])
def test_plans_that_were_searched(memory: str) -> None:
    step = step_of()
    for plan in (
        step.plan("dp=2,tp=2", auto=True, memory=memory),
        heddle.search(step, devices=4, memory=memory).plan,
    ):
        links = heddle.verify(step.compile(plan), batch_of()).links
        assert [link.result for link in links[::2]] == ["same bits", "same bits"]


def test_one_rank_has_the_same_bits() -> None:
    step = step_of()
    links = heddle.verify(step.compile(step.plan("dp=1")), batch_of()).links
    assert [link.result for link in links[:3]] == ["same bits"] * 3


def replaced(text: str, old: str, new: str) -> heddle.Graph:
    assert old in text, f"the fault {old!r} is not in the graph"
    return heddle.Graph.parse(text.replace(old, new, 1))


CAPTURE = {
    "eps": ("eps=1e-05", "eps=1.1e-05"),
    "gelu": ("aten.gelu(%view_1)", 'aten.gelu(%view_1, approximate="tanh")'),
    "reduction": ("%_log_softmax, %view_7, reduction=2", "%_log_softmax, %view_7, reduction=1"),
    "residual": ("aten.add.Tensor(%embedding, %gelu)", "aten.add.Tensor(%gelu, %gelu)"),
    "one weight twice": ("aten.t(%blocks_1_weight)", "aten.t(%blocks_0_weight)"),
    "gradients swapped": ("grad 5 %getitem_6", "grad 5 %getitem_7"),
    "saved value": (
        "aten.gelu_backward(%getitem_5, %view_3)",
        "aten.gelu_backward(%getitem_5, %view_1)",
    ),
    "alpha": ("aten.add.Tensor(%add_2, %view_17)", "aten.add.Tensor(%add_2, %view_17, alpha=2)"),
}


def test_a_fault_in_the_update_of_a_buffer() -> None:
    torch.manual_seed(0)
    model, batch, loss = averages()
    step = heddle.capture(model, batch, loss=loss)
    step._graph = replaced(str(step.graph), "(%count, other=1)", "(%count, other=2)")
    with pytest.raises(heddle.RunError, match="the update `buffer count` differs"):
        heddle.verify(step.compile(step.plan("dp=1")), batch)


@pytest.mark.parametrize("fault", CAPTURE)
def test_faults_in_capture(fault: str) -> None:
    step = step_of()
    step._graph = replaced(str(step.graph), *CAPTURE[fault])
    with pytest.raises(heddle.RunError, match="eager = captured"):
        heddle.verify(step.compile(step.plan("dp=2")), batch_of())


PLAN = {
    "maximum for sum": (
        "comm.reduce_scatter(%mm_5, over=[dp], why=grad",
        "comm.reduce_scatter(%mm_5, over=[dp], op=max, why=grad",
    ),
    "average": (
        "comm.reduce_scatter(%mm_3, over=[dp], why=grad",
        "comm.reduce_scatter(%mm_3, over=[dp], op=avg, why=grad",
    ),
    "scale": (
        "comm.reduce_scatter(%view_16, over=[dp], why=grad",
        "comm.reduce_scatter(%view_16, over=[dp], scale=0.5, why=grad",
    ),
    "wrong weight": (
        "comm.all_gather(%blocks_1_weight, over=[dp]",
        "comm.all_gather(%blocks_0_weight, over=[dp]",
    ),
    "local weight": (
        "comm.all_reduce(%loss_weight, over=[dp], why",
        "comm.all_reduce(%loss_weight, over=[dp], op=max, why",
    ),
    "lost part": ("grad 5 %grad_2 of", "grad 5 %norm_weight of"),
}


@pytest.mark.parametrize("fault", PLAN)
def test_faults_in_plans(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step = step_of()
    program = step.compile(step.plan("dp=4"))
    planned = verifying._Verifier._planned
    monkeypatch.setattr(
        verifying._Verifier, "_planned", lambda self: replaced(str(planned(self)), *PLAN[fault])
    )
    with pytest.raises(heddle.RunError, match="captured ~ planned"):
        heddle.verify(program, batch_of())


def changes(op: str, change: Callable[[Any, Any], None]) -> heddle.passes.GraphPass:
    def faulty(graph: heddle.Graph, edit: heddle.passes.Edit) -> None:
        change(edit, next(node for node in graph.nodes if node.op == op))

    return heddle.graph_pass(faulty)


PASSES = {
    "eps": ("aten.native_layer_norm", lambda edit, n: edit.set_attrs(n, eps=1.1e-5)),
    "gelu": ("aten.gelu", lambda edit, n: edit.set_attrs(n, approximate="tanh")),
    "scale": ("comm.reduce_scatter", lambda edit, n: edit.set_attrs(n, scale=0.5)),
    "bypassed": ("aten.gelu", lambda edit, n: edit.replace(n.result, n.operand(0))),
    "alpha": ("aten.add.Tensor", lambda edit, n: edit.set_attrs(n, alpha=1.0001)),
    "backward": ("aten.gelu_backward", lambda edit, n: edit.set_attrs(n, approximate="tanh")),
}


@pytest.mark.parametrize("fault", PASSES)
def test_faults_in_passes(fault: str) -> None:
    step = step_of()
    pipeline = ["clean", changes(*PASSES[fault]), "prefetch"]
    program = step.compile(step.plan("dp=4"), pipeline=pipeline)
    with pytest.raises(heddle.RunError, match="after pass faulty") as error:
        heddle.verify(program, batch_of())
    text = str(error.value)
    assert "planned = scheduled" in text and "first at %" in text


def test_a_fault_names_the_module_and_its_line() -> None:
    step = step_of()
    change = changes("aten.addmm", lambda edit, n: edit.set_attrs(n, alpha=1.5))
    program = step.compile(step.plan("dp=4"), pipeline=["clean", change])
    with pytest.raises(heddle.RunError) as error:
        heddle.verify(program, batch_of())
    found = error.value.diagnostics[0]
    assert "first at %addmm" in found.message and "of blocks.0" in found.message
    assert found.file is not None and found.file.endswith("test_to_fx.py")
    assert found.source == "x = x + torch.nn.functional.gelu(block(x))"


def test_a_fault_in_backward_names_the_forward_line() -> None:
    step = step_of()
    change = changes(
        "aten.native_layer_norm_backward",
        lambda edit, n: edit.replace(n.results[0], n.operand(0)),
    )
    program = step.compile(step.plan("dp=4"), pipeline=["clean", change])
    with pytest.raises(heddle.RunError) as error:
        heddle.verify(program, batch_of())
    found = error.value.diagnostics[0]
    assert "_backward" in found.message
    assert found.source == "x = x + torch.nn.functional.gelu(block(x))"


EXPORT = {
    "eps": """
import heddle._to_fx as m
old = m._Writer._argument
m._Writer._argument = lambda self, value: old(self, 1.1e-05 if value == 1e-05 else value)
""",
    "parts of ranks": """
import heddle._parts as m
old = m.Place.size
m.Place.size = lambda self, text: min(old(self, text), 5)
""",
}


@pytest.mark.processes
@pytest.mark.parametrize("fault", EXPORT)
def test_faults_in_export(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without faults, `test_hf_fx` and `test_experts` compare the same link."""
    batch = batch_of()
    step = step_of()
    program = step.compile(step.plan("dp=2"))
    # The processes of ranks import it at their start.
    Path(tmp_path, "sitecustomize.py").write_text(EXPORT[fault])
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    with pytest.raises(heddle.RunError, match="scheduled = FX|rank .* ended"):
        heddle.verify(program, batch, processes=True)


def test_programs_without_a_module_are_refused(step: heddle.Graph, plan: heddle.Plan) -> None:
    with pytest.raises(heddle.RunError, match="not captured from a module"):
        heddle.verify(heddle.Program(step, plan), {})
