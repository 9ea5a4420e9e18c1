"""Passes in Python: edits, the manager's checks, and pipelines with such passes."""

from __future__ import annotations

import pytest

import heddle
from heddle.testing import golden

GRAPH = """heddle 1 local
graph @g(%x: f32[4,6] batch "x", %w: f32[4,6] param 0 "w") -> (loss %l, grad 0 %b) {
  %a = aten.t(%x) @up
  %b = aten.t(%a) @up keep=must_save
 bwd:
  %c = aten.mul.Tensor(%b, %w) @up
  %l = aten.sum(%c)
}
"""


@heddle.graph_pass(numerics="exact")
def transpose_twice(graph: heddle.Graph, edit: heddle.passes.Edit) -> None:
    """aten.t of aten.t is what it was."""
    for node in graph.nodes:
        inner = node.operands[0].producer if node.op == "aten.t" and node.operands[0] else None
        if inner is not None and inner.op == "aten.t":
            edit.replace(node.result, inner.operand(0))
            edit.count("removed")
            edit.remark("the views are gone", node.result)


def test_replace() -> None:
    golden(
        GRAPH
        + """--- out
heddle 1 local
graph @g(%x: f32[4,6] batch "x", %w: f32[4,6] param 0 "w") -> (loss %l, grad 0 %x) {
 bwd:
  %c = aten.mul.Tensor(%x, %w) @up
  %l = aten.sum(%c)
}
""",
        lambda graph: heddle.run_pipeline(transpose_twice(graph), "dce"),
    )
    assert transpose_twice.counts == {"removed": 1}
    assert transpose_twice.remarks == ["@g %b: the views are gone"]


def edited(change) -> str:  # type: ignore[no-untyped-def]
    edits = heddle.graph_pass(numerics="rounding")(change)
    return str(edits(heddle.Graph.parse(GRAPH)))


def test_insert_move_set_and_keep() -> None:
    def change(graph: heddle.Graph, edit: heddle.passes.Edit) -> None:
        a, b, c, _ = graph.nodes
        negative = edit.insert_after(c, "aten.neg", c.result)
        total = edit.insert_after(c, "aten.cat", [c.result, c.result], dim=0, name="both")
        assert (negative.name, total.name) == ("neg", "both")
        edit.set_keep(b.result, "must_recompute")
        edit.set_attrs(graph.nodes[3], dtype="f64")

    text = edited(change)
    assert "%both = aten.cat([%c, %c])" in text and ": f32[8,6]" in text
    assert "%neg = aten.neg(%c)" in text
    assert "keep=must_recompute" in text and "must_save" not in text
    assert "%l = aten.sum(%c, dtype=f64)" in text and ": f64[]" in text

    def move(graph: heddle.Graph, edit: heddle.passes.Edit) -> None:
        edit.move_before(graph.nodes[1], graph.nodes[0])

    with pytest.raises(heddle.PassError, match="`a` is used before|%a"):
        edited(move)


def test_a_pass_that_changes_nothing() -> None:
    graph = heddle.Graph.parse(GRAPH)
    assert heddle.graph_pass(lambda graph, edit: None)(graph) == graph


def test_a_pass_that_lies_about_bits_is_caught() -> None:
    pytest.importorskip("heddle._torch", exc_type=ImportError)

    def negate(graph: heddle.Graph, edit: heddle.passes.Edit) -> None:
        product = graph.nodes[2]
        edit.replace(product.result, edit.insert_after(product, "aten.neg", product.operand(0)))

    with pytest.raises(
        heddle.PassError, match="`negate` is declared exact, and bits differ: rank 0"
    ):
        heddle.graph_pass(negate)(heddle.Graph.parse(GRAPH))
    heddle.graph_pass(numerics="rounding")(negate)(heddle.Graph.parse(GRAPH))

    @heddle.graph_pass
    def nothing(graph: heddle.Graph, edit: heddle.passes.Edit) -> None:
        edit.set_keep(graph.nodes[0].results[0], "must_save")

    # A random op draws the same numbers before and after.
    nothing(
        heddle.Graph.parse(
            """heddle 1 local
graph @g(%x: f32[64] batch "x") -> (metric %y) {
  %y, %mask = aten.native_dropout(%x, p=0.5, train=true)
}
"""
        )
    )


def test_the_manager_checks_roles() -> None:
    def lose(graph: heddle.Graph, edit: heddle.passes.Edit) -> None:
        text = str(graph).replace('batch "x"', 'batch "y"')
        edit.apply = lambda: heddle.Graph.parse(text)  # type: ignore[method-assign]

    with pytest.raises(heddle.PassError, match="lost"):
        edited(lose)


def test_mistakes() -> None:
    def erase(graph: heddle.Graph, edit: heddle.passes.Edit) -> None:
        edit.erase(graph.nodes[0])

    with pytest.raises(heddle.Error, match="%a"):
        edited(erase)

    def twice(graph: heddle.Graph, edit: heddle.passes.Edit) -> None:
        edit.erase(graph.nodes[3])
        edit.erase(graph.nodes[3])

    with pytest.raises(heddle.PassError, match="no longer in the graph"):
        edited(twice)

    def fails(graph: heddle.Graph, edit: heddle.passes.Edit) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        edited(fails)
    with pytest.raises(heddle.PassError, match="numerics is 'none'"):
        heddle.graph_pass(numerics="none")(erase)


def test_pipelines_with_passes(step: heddle.Graph, plan: heddle.Plan) -> None:
    seen = []

    @heddle.graph_pass
    def look(graph: heddle.Graph, edit: heddle.passes.Edit) -> None:
        seen.append(len(graph))
        edit.count("nodes", len(graph))

    program = heddle.Program(step, plan, pipeline=["clean", look, "fsdp"])
    names = [row["name"] for row in program.passes]
    assert "look" in names and names.index("look") < len(names) - 1
    row = program.passes[names.index("look")]
    assert row["counts"] == {"nodes": seen[0]} and not row["changed"]
    assert program.graph == heddle.Program(step, plan, pipeline="clean, fsdp").graph
    with pytest.raises(heddle.PassError, match="expected a text or a pass"):
        heddle.Program(step, plan, pipeline=["clean", print])  # type: ignore[list-item]
