"""Searches the fastest plan for a step on 16 GPUs, and explains a placement.

python examples/python/search_plans.py
"""

from __future__ import annotations

import heddle
from plan_step import small_step


def main() -> None:
    step = heddle.Step(heddle.Graph.parse(small_step()))
    best = heddle.search(step, devices=16, cluster="h100-8x", memory="72GiB")
    print(best)
    print(best.plan)

    plan = step.plan("dp=2,tp=8", auto=True)
    print(plan)
    print(plan.explain("layers.0.weight"))


if __name__ == "__main__":
    main()
