"""Plans a step on a cluster, simulates it, and compares two schedules.

    python examples/python/plan_step.py [STEP.hd]

Without a file it makes a small step of four layers. `heddle capture` and `heddle import --global`
write such files.
"""

from __future__ import annotations

import sys

import heddle


def small_step(layers: int = 4, width: int = 4096, tokens: int = 65536) -> str:
    """Forward and backward of a chain of matrix products, as text."""
    weights = [
        f'%w{i}: bf16[{width},{width}] param {i} "layers.{i}.weight" unit "layers.{i}"'
        for i in range(layers)
    ]
    grads = [f"grad {i} %gw{i}" for i in range(layers)]
    lines = [
        "heddle 1 global",
        f'graph @step(%x0: bf16[{tokens},{width}] batch "x", {", ".join(weights)})',
        f"    -> (loss %l, {', '.join(grads)}) {{",
    ]
    lines += [f"  %x{i + 1} = aten.mm(%x{i}, %w{i}) @layers.{i}" for i in range(layers)]
    lines += [f"  %l = aten.sum(%x{layers})", " bwd:", f"  %g{layers} = aten.ones_like(%x{layers})"]
    for i in reversed(range(layers)):
        lines += [
            f"  %xt{i} = aten.t(%x{i}) @layers.{i}",
            f"  %gw{i} = aten.mm(%xt{i}, %g{i + 1}) @layers.{i}",
            f"  %wt{i} = aten.t(%w{i}) @layers.{i}",
            f"  %g{i} = aten.mm(%g{i + 1}, %wt{i}) @layers.{i}",
        ]
    return "\n".join([*lines, "}"])


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else None
    graph = heddle.Graph.load(path) if path else heddle.Graph.parse(small_step())
    step = heddle.Step(graph)
    print(step)

    plan = step.plan("dp=16")
    print(plan)
    program = step.compile(plan, cluster="h100-8x")
    print(program.passes)
    simulation = program.simulate()
    print(simulation.collectives)
    print(simulation)

    unscheduled = step.compile(plan, pipeline="none", cluster="h100-8x")
    print(simulation.compare(unscheduled))


if __name__ == "__main__":
    main()
