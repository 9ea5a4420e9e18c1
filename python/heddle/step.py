"""A captured step: a global graph, which plans spread over ranks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from . import _core
from ._core import Graph, Plan
from ._rich import step_html
from .passes import GraphPass
from .program import Program

if TYPE_CHECKING:
    from ._source import Source

__all__ = ["Flows", "ParallelRules", "Step"]


class Flows(Protocol):
    """The activations that modules take and give: `residual`, `whole`, `logits` or None.

    >>> from heddle.step import Flows
    >>> sorted(Flows.__annotations__)
    ['inputs', 'outputs', 'pattern']
    """

    pattern: str
    inputs: str | None
    outputs: str | None


class ParallelRules(Protocol):
    """What a plan needs to know of a model; `heddle.rules.Rules` is one.

    >>> from heddle.step import ParallelRules
    >>> sorted(ParallelRules.__annotations__)
    ['experts', 'layers']
    """

    experts: Sequence[str]
    layers: Sequence[Flows]

    def split_dim(self, parameter: str) -> int | None:
        """The dimension of a parameter that a `tp` axis splits; None for a replicated one."""

    def unit(self, parameter: str) -> str | None:
        """The FSDP unit of a parameter; None for the one that the graph states."""


def lists_of(rules: ParallelRules | None, graph: Graph) -> _core.RuleLists:
    """The rules as the compiler takes them, by the parameters of a graph."""
    if rules is None:
        return _core.RuleLists()
    names = [value.label for value in graph.inputs if value.role == "param"]
    dims = [(name, rules.split_dim(name)) for name in names]
    units = [(name, rules.unit(name)) for name in names]
    return _core.RuleLists(
        weights=[(name, dim) for name, dim in dims if dim is not None],
        experts=[glob for given in rules.experts for glob in _globs(given)],
        layers=[
            (glob, layer.inputs or "", layer.outputs or "")
            for layer in rules.layers
            for glob in _globs(layer.pattern)
        ],
        units={name: unit for name, unit in units if unit is not None},
    )


def _globs(glob: str) -> list[str]:
    """`**.` is any number of names, none included; in the patterns of plans it is one at least."""
    return [glob, glob.removeprefix("**.")] if glob.startswith("**.") else [glob]


class Step:
    """A training step as it was captured: whole tensors, no ranks.

    >>> graph = heddle.Graph.parse('''heddle 1 global
    ... graph @step(%x: f32[8,16] batch "x", %w: f32[16,16] param 0 "up.weight" unit "up")
    ...     -> (loss %l) {
    ...   %y = aten.mm(%x, %w)
    ...   %l = aten.sum(%y)
    ... }''')
    >>> step = heddle.Step(graph)
    >>> step
    <heddle.Step @step: 2 nodes, 256 parameters, 0 opaque ops>
    >>> plan = step.plan("dp=4")
    >>> print(plan)
    heddle plan 1
    mesh [dp=4]
    input "*" [dp]
    param "up.weight" store [dp,-] compute [-,-] unit "up"
    <BLANKLINE>
    >>> step.compile(plan, cluster="h100-8x").simulate().step_time > 0
    True
    """

    def __init__(
        self,
        graph: Graph,
        *,
        parameters: Sequence[Any] | None = None,
        remarks: Sequence[str] | None = None,
        rules: ParallelRules | None = None,
        constants: Mapping[str, Any] | None = None,
        hyper: Mapping[str, float] | None = None,
        source: Source | None = None,
    ) -> None:
        """`rules` are used by plans that give none. `parameters` default to those of the graph.

        `constants`: values of buffers that are no part of the model. `hyper`: defaults of values
        that change per step, as `lr`. `source`: what it was captured from, for `heddle.verify`.
        """
        self._source = source
        self._constants = dict(constants or {})
        self._hyper = dict(hyper or {})
        self._graph = graph
        self._parameters = parameters
        self._remarks = list(graph.remarks if remarks is None else remarks)
        self._rules = rules

    @property
    def graph(self) -> Graph:
        """The graph of the whole step."""
        return self._graph

    @property
    def parameters(self) -> Sequence[Any]:
        """The parameters, in registration order: as captured, or values of the graph."""
        if self._parameters is not None:
            return self._parameters
        return [value for value in self._graph.inputs if value.role == "param"]

    @property
    def remarks(self) -> list[str]:
        """What capture or import assumed or lost, one sentence each."""
        return self._remarks

    def plan(
        self,
        mesh: str | Mapping[str, int],
        *,
        auto: bool = False,
        rules: ParallelRules | None = None,
        memory: str = "",
        cluster: str = "h100-8x",
    ) -> Plan:
        """A plan for a mesh: axes and sizes, the slowest first, as `dp=4,tp=2`.

        Axes called `dp_replicate`, `dp` and `tp` are DDP, FSDP and tensor parallelism. Tensor
        parallelism needs rules, or `auto`, which finds the fastest placements on the cluster.
        `memory` limits a rank's memory, as `60GiB`; what backward recomputes is then searched.
        """
        text = mesh if isinstance(mesh, str) else ",".join(f"{a}={n}" for a, n in mesh.items())
        chosen = rules if rules is not None else self._rules
        return _core.make_plan(
            self._graph,
            text,
            auto=auto,
            rules=lists_of(chosen, self._graph),
            memory=memory,
            cluster=cluster,
        )

    def compile(
        self,
        plan: Plan,
        *,
        pipeline: str | GraphPass | Sequence[str | GraphPass] | None = None,
        cluster: str | None = None,
        costs: str | os.PathLike[str] = "",
        memory: str = "",
        checkpoint: str = "",
    ) -> Program:
        """The program of each rank: see `heddle.Program`."""
        program = Program(
            self._graph,
            plan,
            pipeline=pipeline,
            cluster=cluster,
            costs=costs,
            memory=memory,
            checkpoint=checkpoint,
            constants=self._constants,
            hyper=self._hyper,
        )
        program._source, program._step_graph = self._source, self._graph
        return program

    def __repr__(self) -> str:
        stats = self._graph.stats()
        opaque = sum(stats["opaque"].values()) if isinstance(stats["opaque"], dict) else 0
        return (
            f"<heddle.Step @{self._graph.name}: {stats['nodes']:,} nodes, "
            f"{stats['parameters']:,} parameters, {opaque} opaque ops>"
        )

    def _repr_html_(self) -> str:
        return step_html(self)
