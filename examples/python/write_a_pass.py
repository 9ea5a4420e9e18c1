"""Writes a pass in Python, tests it, and puts it into the pipeline of a program.

    python examples/python/write_a_pass.py
"""

from __future__ import annotations

import heddle
from heddle.testing import golden


@heddle.graph_pass(numerics="exact")
def transpose_twice(graph: heddle.Graph, edit: heddle.passes.Edit) -> None:
    """aten.t of aten.t is what it was."""
    for node in graph.nodes:
        inner = node.operands[0].producer if node.op == "aten.t" and node.operands[0] else None
        if inner is not None and inner.op == "aten.t":
            edit.replace(node.result, inner.operand(0))
            edit.count("removed")


# A golden: the graph before and after. Types and scopes are checked with it.
golden(
    """heddle 1 local
graph @g(%x: f32[4,6]) -> (%c) {
  %a = aten.t(%x) @up
  %b = aten.t(%a) @up
  %c = aten.relu(%b)
}
--- out
heddle 1 local
graph @g(%x: f32[4,6]) -> (%c) {
  %c = aten.relu(%x)
}
""",
    lambda graph: heddle.run_pipeline(transpose_twice(graph), "dce"),
)
print(f"the golden holds; {transpose_twice!r} counted {transpose_twice.counts}")

step = heddle.Graph.parse("""heddle 1 global
graph @step(%x: f32[8,16] batch "x", %w: f32[16,16] param 0 "up.weight" unit "up")
    -> (loss %l, grad 0 %gw) {
  %wt = aten.t(%w) @up
  %w2 = aten.t(%wt) @up
  %y = aten.mm(%x, %w2) @up
  %l = aten.sum(%y)
 bwd:
  %one = aten.ones_like(%y) @up
  %xt = aten.t(%x) @up
  %gw = aten.mm(%xt, %one) @up
}
""")
plan = heddle.Step(step).plan("dp=4")
before = heddle.Program(step, plan, pipeline="dce")
after = heddle.Program(step, plan, pipeline=[transpose_twice, "dce, bucket-by-unit"])
print(after.passes)

try:
    from heddle.testing import assert_same_bits

    assert_same_bits(before.graph, after.graph, ranks=4)
    print("4 ranks compute the same bits before and after")
except heddle.RunError as error:
    # The wheel without heddle._torch runs no graphs.
    print(error)
