"""Graphs, nodes and values."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

import heddle
from conftest import STEP


def test_text_goes_there_and_back(step: heddle.Graph, tmp_path: Path) -> None:
    again = heddle.Graph.parse(str(step))
    assert again == step and str(again) == str(step) and again.hash == step.hash
    step.save(tmp_path / "step.hd")
    assert heddle.Graph.load(tmp_path / "step.hd") == step


def test_hash_is_of_the_work_not_of_names(step: heddle.Graph) -> None:
    renamed = heddle.Graph.parse(STEP.replace("%gh", "%hidden"))
    assert renamed != step and renamed.hash == step.hash
    other = heddle.Graph.parse(STEP.replace("aten.sum", "aten.mean"))
    assert other.hash != step.hash


def test_views(step: heddle.Graph) -> None:
    assert (step.name, step.view, step.mesh, len(step)) == ("step", "global", {}, 10)
    first, last = step.nodes[0], step.nodes[-1]
    assert (first.op, first.index, first.scope, first.phase) == ("aten.mm", 0, "up", "fwd")
    assert (last.phase, [v.name for v in last.operands]) == ("bwd", ["xt", "gh"])
    assert [n.index for n in step.nodes] == list(range(10))
    with pytest.raises(IndexError):
        step.nodes[10]
    x, w = step.inputs[0], step.inputs[1]
    assert (x.role, x.label, x.index, x.producer) == ("batch", "x", None, None)
    assert (w.role, w.label, w.index, w.unit) == ("param", "up.weight", 0, "up")
    assert (w.dtype, w.shape, w.nbytes, w.type) == ("f32", (16, 32), 2048, "f32[16,32]")
    assert [user.index for user in step.value("h").users] == [1, 4]
    assert [(o.role, o.index, o.value.name) for o in step.outputs] == [
        ("loss", None, "l"),
        ("grad", 0, "gw"),
        ("grad", 1, "gv"),
    ]
    assert first.result.producer == first and first != last
    with pytest.raises(KeyError, match="no value `%nothing`"):
        step.value("nothing")


def test_views_outlive_their_graph() -> None:
    node = heddle.Graph.parse(STEP).nodes[0]
    assert node.operand(1).label == "up.weight"


def test_attributes() -> None:
    graph = heddle.Graph.parse("""heddle 1 local
mesh [dp=2, tp=4]
graph @g(%x: bf16[8,3]) -> (%y, %z) {
  %a = comm.all_reduce(%x, op=max, over=[dp,tp], why=grad)
  %y = comm.wait(%a)
  %z = aten._to_copy(%x, dtype=f32)
}""")
    reduce, _, copied = graph.nodes
    assert reduce.attrs == {"op": "max", "over": ["dp", "tp"], "why": "grad"}
    assert copied.attrs == {"dtype": "f32"}
    assert graph.mesh == {"dp": 2, "tp": 4}


def test_stats_and_diff(step: heddle.Graph) -> None:
    stats = step.stats()
    assert (stats["nodes"], stats["parameters"]) == (10, 1024)
    other = heddle.Graph.parse(STEP.replace("aten.ones_like", "aten.zeros_like"))
    assert step.diff(step) == ""
    assert "aten.zeros_like" in step.diff(other)


def test_graphs_can_be_copied_and_pickled(step: heddle.Graph) -> None:
    assert pickle.loads(pickle.dumps(step)) == step
    assert copy.deepcopy(step) == step


def test_mistakes_have_places() -> None:
    with pytest.raises(heddle.Error) as caught:
        heddle.Graph.parse(
            "heddle 1 local\ngraph @g() -> () {\n  %a = aten.relu(%b) : f32[4]\n}", "my.hd"
        )
    (first, *_) = caught.value.diagnostics
    assert (first.kind, first.file, first.line) == ("undefined-value", "my.hd", 3)
    assert "aten.relu(%b)" in first.source
    assert "my.hd:3:" in str(caught.value)


def test_several_graphs_are_refused() -> None:
    one = "graph @{}(%x: f32[1]) -> (%x) {{\n}}\n"
    with pytest.raises(heddle.Error, match="2 graphs"):
        heddle.Graph.parse("heddle 1 local\n" + one.format("a") + one.format("b"))


def test_a_missing_file_is_named() -> None:
    with pytest.raises(heddle.Error, match="no/such.hd"):
        heddle.Graph.load("no/such.hd")
