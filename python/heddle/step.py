"""A captured step: a global graph, which plans spread over ranks."""

from __future__ import annotations

import os
import re
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
    >>> Flows.inputs.__doc__
    'The activations that the modules take.'
    """

    @property
    def pattern(self) -> str:
        """The glob of the modules."""

    @property
    def inputs(self) -> str | None:
        """The activations that the modules take."""

    @property
    def outputs(self) -> str | None:
        """The activations that the modules give."""


class ParallelRules(Protocol):
    """What a plan needs to know of a model; `heddle.rules.Rules` is one.

    >>> from heddle.step import ParallelRules
    >>> ParallelRules.experts.__doc__
    'Globs of the parameters that stack experts.'
    """

    @property
    def experts(self) -> Sequence[str]:
        """Globs of the parameters that stack experts."""

    @property
    def layers(self) -> Sequence[Flows]:
        """The activations between modules, for sequence parallelism."""

    @property
    def local(self) -> Sequence[str]:
        """Globs of the modules in which each rank routes its own tokens."""

    def split_dim(self, parameter: str) -> int | None:
        """The dimension of a parameter that a `tp` axis splits; None for a replicated one."""

    def unit(self, parameter: str) -> str | None:
        """The FSDP unit of a parameter; None for the one that the graph states."""


def lists_of(
    rules: ParallelRules | None, graph: Graph, *, shares_experts: bool = False
) -> _core.RuleLists:
    """The rules as the compiler takes them, by the parameters of a graph.

    With `shares_experts`, `tp` splits no stack of experts: ranks have some experts, and these
    whole.
    """
    if rules is None:
        return _core.RuleLists()
    names = [value.label for value in graph.inputs if value.role == "param"]
    dims = [
        (name, None if shares_experts and _stacks(rules, name) else rules.split_dim(name))
        for name in names
    ]
    units = [(name, rules.unit(name)) for name in names]
    layers = [
        (glob, layer.inputs or "", layer.outputs or "")
        for layer in rules.layers
        for glob in _globs(layer.pattern)
    ]
    return _core.RuleLists(
        weights=[(name, dim) for name, dim in dims if dim is not None],
        experts=[glob for given in rules.experts for glob in _globs(given)],
        layers=layers or [(glob, "whole", "whole") for glob in _split_modules(dims)],
        own_tokens=[glob for given in rules.local for glob in _globs(given)],
        units={name: unit for name, unit in units if unit is not None},
    )


def _stacks(rules: ParallelRules, name: str) -> bool:
    """Whether a parameter stacks experts."""
    from .rules import matches

    return any(matches(glob, name) for glob in rules.experts)


def _split_modules(dims: Sequence[tuple[str, int | None]]) -> list[str]:
    """Globs of the modules that split columns first, and then rows, as attention and MLP do.

    Where the activations around such a module are whole, `tp` adds its output once, and the
    gradients of its input in one sum. Elsewhere each reader of a pending sum adds it again.
    """
    parents = [
        {name.rpartition(".")[0].rpartition(".")[0] for name, d in dims if d == dim}
        for dim in (0, 1)
    ]
    both = [name for name in dict.fromkeys(sorted(parents[0] & parents[1])) if name]
    return list(dict.fromkeys(re.sub(r"(?<![^.])\d+(?![^.])", "*", name) for name in both))


def _has_axis(mesh: str, name: str, role: str) -> bool:
    """Whether a mesh, as `dp=4,tp=2` or `dp=4,rows=2 tensor`, has an axis of some ranks."""
    axes = [re.fullmatch(rf"\s*(\w+)=(\d+)(\s+{role})?\s*", axis) for axis in mesh.split(",")]
    return any(axis and int(axis[2]) > 1 and (axis[1] == name or axis[3]) for axis in axes)


def _split_any(rules: ParallelRules | None, graph: Graph) -> bool:
    """Whether the rules split some parameter."""
    names = (value.label for value in graph.inputs if value.role == "param")
    return rules is not None and any(rules.split_dim(name) is not None for name in names)


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
        parallelism follows the rules. With `auto`, or if no rule splits a weight, the solver finds
        the fastest placements on the cluster. An axis `ep` is FSDP, too, and its ranks share the
        experts that the rules name.
        `memory` limits a rank's memory, as `60GiB`; what backward recomputes is then searched.
        """
        text = mesh if isinstance(mesh, str) else ",".join(f"{a}={n}" for a, n in mesh.items())
        chosen = rules if rules is not None else self._rules
        shares_experts = _has_axis(text, "ep", "expert")
        has_tensor = _has_axis(text, "tp", "tensor")
        if not auto and has_tensor and not _split_any(chosen, self._graph):
            auto = True
            remark = "no rule splits a weight over `tp`, so the solver placed the step"
            if remark not in self._remarks:
                self._remarks.append(remark)
        return _core.make_plan(
            self._graph,
            text,
            auto=auto,
            rules=lists_of(chosen, self._graph, shares_experts=shares_experts),
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
