"""The backend of `torch.compile`: schedules the collectives of a graph, and reports."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule

from ._keep import Kept, partition_by
from ._torch_names import aot_backend
from .errors import Diagnostic, Error
from .fx import as_pass, read_local
from .program import Program

__all__ = ["Compiled", "compiled", "heddle"]

_OPTIONS = ("pipeline", "cluster", "report", "checkpoint")
_POLICIES = ("none", "full", "selective", "min-cut")
_PIPELINE = "reorder-for-memory"


@dataclass(frozen=True)
class Compiled:
    """One graph that the backend compiled.

    >>> from heddle.backend import Compiled
    >>> Compiled("forward", 12, 2, 3e-5, 2e-5)
    forward: 12 nodes, 2 collectives, 30.0 us -> 20.0 us
    """

    name: str
    nodes: int
    collectives: int
    # Simulated step times in seconds; None for a graph that stays as it is.
    before: float | None = None
    after: float | None = None
    # Why the graph stays as it is.
    reason: str = ""
    # What was decided about values for backward; empty without `checkpoint`.
    kept: str = ""

    def __repr__(self) -> str:
        text = f"{self.name}: {self.nodes} nodes, {self.collectives} collectives"
        if self.before is None or self.after is None:
            return f"{text}, unchanged: {self.reason}"
        kept = f", {self.kept}" if self.kept else ""
        return f"{text}, {self.before * 1e6:.1f} us -> {self.after * 1e6:.1f} us{kept}"


_compiled: list[Compiled] = []


def compiled() -> list[Compiled]:
    """What the backend compiled in this process, in order.

    >>> from heddle.backend import compiled
    >>> isinstance(compiled(), list)
    True
    """
    return list(_compiled)


def _schedule(
    gm: GraphModule, name: str, pipeline: str, cluster: str, report: str | None, kept: str
) -> GraphModule:
    calls = [node for node in gm.graph.nodes if node.op == "call_function"]
    collectives = sum(
        "_c10d_functional" in str(node.target) and "wait_tensor" not in str(node.target)
        for node in calls
    )
    try:
        before = Program(read_local(gm), cluster=cluster).simulate()
        done = as_pass(pipeline, cluster=cluster)(gm, ())
        after = Program(read_local(done), cluster=cluster).simulate()
    except Error as error:
        # The graph runs as it is; `compiled()` has the reason.
        reason = str(error).splitlines()[0]
        _compiled.append(Compiled(name, len(calls), collectives, reason=reason, kept=kept))
        return gm
    times = before.step_time, after.step_time
    _compiled.append(Compiled(name, len(calls), collectives, *times, kept=kept))
    if report is not None:
        root, extension = os.path.splitext(report)
        after.compare(before).save(f"{root}-{len(_compiled)}-{name}{extension or '.html'}")
    return done


def heddle(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    **unused: Any,
) -> Any:
    """The backend: `torch.compile(model, backend="heddle", options=dict(pipeline="overlap"))`.

    `pipeline`: passes that move nodes (default: `reorder-for-memory`). `cluster`: whose times they
    use. `report`: an HTML file; each graph writes one, with its number and name. `checkpoint`: what
    is kept for backward and what is recomputed: `none`, `full`, `selective` or `min-cut`; without
    it, all that backward reads is kept. Nothing else changes, so results have the bits of the graph
    as traced. `compiled()` lists what was done.

    >>> import torch
    >>> from heddle.backend import compiled, heddle
    >>> f = torch.compile(lambda x: (x.relu() * 2).sum(), backend=heddle)
    >>> f(torch.ones(3)).item(), compiled()[-1].name
    (6.0, 'inference')
    """
    given = dict(options or {})
    for key in given:
        if key not in _OPTIONS:
            message = f"option `{key}` is unknown; there are {', '.join(_OPTIONS)}"
            raise Error("", [Diagnostic("backend-option", message)])
    pipeline, cluster = given.get("pipeline", _PIPELINE), given.get("cluster", "h100-8x")
    report = given.get("report")
    decided = ""

    def decide(kept: Kept) -> None:
        nonlocal decided
        decided = str(kept)

    partition = {}
    if "checkpoint" in given:
        if given["checkpoint"] not in _POLICIES:
            message = f"checkpoint is `{given['checkpoint']}`; there are {', '.join(_POLICIES)}"
            raise Error("", [Diagnostic("backend-option", message)])
        partition["partition_fn"] = partition_by(given["checkpoint"], cluster, decide)

    def compiler(name: str) -> Any:
        def run(graph: GraphModule, inputs: Sequence[Any]) -> Any:
            file = None if report is None else os.fspath(report)
            done = _schedule(graph, name, pipeline, cluster, file, decided)

            def call(values: list[Any]) -> Any:
                # Boxed: the caller's list is emptied, so that inputs can be freed early.
                given = list(values)
                values.clear()
                return done(*given)

            call._boxed_call = True  # type: ignore[attr-defined]
            return call

        return run

    return aot_backend(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        **partition,
    )(gm, example_inputs)
