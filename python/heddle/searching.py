"""The search for the fastest way to train on a number of devices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from . import _core
from ._core import Graph, Plan
from ._rich import Progress
from .program import Comparison, Program, Simulation
from .step import ParallelRules, Step, lists_of
from .table import Table

__all__ = ["SearchResult", "search"]


class SearchResult:
    """The plans that no other plan beats in both time and memory, the fastest first.

    >>> graph = heddle.Graph.parse('''heddle 1 global
    ... graph @step(%x: f32[8,16] batch "x", %w: f32[16,16] param 0 "up.weight" unit "up")
    ...     -> (loss %l) {
    ...   %y = aten.mm(%x, %w)
    ...   %l = aten.sum(%y)
    ... }''')
    >>> best = heddle.search(graph, devices=4, cluster="h100-8x")
    >>> best.plan.mesh
    {'dp': 4}
    >>> best.simulate().step_time == best.plans[0]["step_time"]
    True
    """

    def __init__(self, step: Step | Graph, cluster: str, found: dict[str, Any]) -> None:
        self._step = step
        self._cluster = cluster
        self._front: list[dict[str, Any]] = found["front"]
        self._found = found

    @property
    def plan(self) -> Plan:
        """The fastest plan that fits."""
        plan: Plan = self._front[0]["plan"]
        return plan

    @property
    def plans(self) -> Table:
        """All plans of the front, with step time, exposed time and peak memory."""
        shown = {"name": "", "step_time": "seconds", "exposed": "seconds", "peak_memory": "bytes"}
        return Table(self._front, shown)

    @property
    def tried(self) -> int:
        """The number of plans that were compiled and simulated."""
        return int(self._found["tried"])

    @property
    def notes(self) -> list[str]:
        """What was left out, and why."""
        return list(self._found["notes"])

    @cached_property
    def program(self) -> Program:
        """The program of the fastest plan."""
        if isinstance(self._step, Graph):
            return Program(self._step, self.plan)
        return self._step.compile(self.plan)

    def simulate(self) -> Simulation:
        """The simulation of the fastest plan."""
        return self.program.simulate()

    def compare(self, before: Simulation | Program) -> Comparison:
        """The fastest plan compared with another program."""
        return self.simulate().compare(before)

    def __str__(self) -> str:
        return str(self.plans)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.plans._repr_html_()


def search(
    step: Step | Graph,
    devices: int,
    *,
    cluster: str = "h100-8x",
    memory: str = "",
    rules: ParallelRules | None = None,
    tensor_degrees: Sequence[int] = (),
    auto: bool = True,
    overlap: bool = True,
) -> SearchResult:
    """Searches meshes, placements and recomputation for the fastest plan that fits.

    `memory`: limit of a device's memory, as `72GiB` (default: the device's). `tensor_degrees`: the
    degrees of tensor parallelism to try with the rules. `auto`: the solver places the step, too.
    `overlap`: the fastest plan is also scheduled by the pass `overlap`. After a second, a notebook
    or a terminal shows progress.

    >>> graph = heddle.Graph.parse('''heddle 1 global
    ... graph @step(%x: f32[8,16] batch "x") -> (loss %l) {
    ...   %l = aten.sum(%x)
    ... }''')
    >>> heddle.search(graph, devices=2, cluster="h100-8x").plan.mesh
    {'dp': 2}
    """
    graph = step if isinstance(step, Graph) else step.graph
    given = rules if rules is not None or isinstance(step, Graph) else step._rules
    with Progress("search") as progress:
        found = _core.search_plans(
            graph,
            devices,
            cluster=cluster,
            memory=memory,
            rules=lists_of(given, graph),
            tensor_degrees=list(tensor_degrees),
            auto=auto,
            overlap=overlap,
            progress=progress,
        )
    return SearchResult(step, cluster, found)
