"""Programs: the graph that each rank runs, and its simulation on a cluster."""

from __future__ import annotations

import os
import tempfile
import webbrowser
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _core
from ._core import Graph, Plan
from ._rich import program_html
from .errors import Diagnostic, PassError
from .passes import GraphPass
from .table import Table

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.distributed.device_mesh import DeviceMesh
    from torch.fx import GraphModule

    from ._source import Source
    from .running import Run

__all__ = ["Comparison", "Program", "Simulation"]

# The height of a report in a notebook.
_FRAME = (
    '<iframe srcdoc="{}" sandbox="allow-scripts" style="width:100%;height:760px;border:0"></iframe>'
)


def _seconds(milliseconds: float) -> float:
    """Times are whole nanoseconds."""
    return round(milliseconds * 1e6) / 1e9


def _show(page: str) -> None:
    with tempfile.NamedTemporaryFile(
        "w", prefix="heddle-", suffix=".html", delete=False, encoding="utf-8"
    ) as file:
        file.write(page)
    webbrowser.open(Path(file.name).as_uri())


def _split(
    pipeline: str | GraphPass | Sequence[str | GraphPass] | None, *, needs_text: bool
) -> tuple[str | None, list[str | GraphPass]]:
    """The passes up to the first one in Python, as a text, and the others."""
    if pipeline is None or isinstance(pipeline, str):
        return pipeline, []
    items: list[str | GraphPass] = []
    items += [pipeline] if isinstance(pipeline, GraphPass) else pipeline
    for item in items:
        if not isinstance(item, (str, GraphPass)):
            kind = type(item).__name__
            hint = "decorate a function with heddle.graph_pass"
            message = f"the pipeline has a {kind}, expected a text or a pass"
            raise PassError("", [Diagnostic("pipeline", message, hint=hint)])
    count = next((i for i, item in enumerate(items) if not isinstance(item, str)), len(items))
    texts = [item for item in items[:count] if isinstance(item, str)]
    # Without a text, compilation would run the usual pipeline.
    first = ", ".join(texts) or ("dce" if needs_text else None)
    return first, items[count:]


class Comparison:
    """Two simulated steps and why their times differ.

    >>> graph = heddle.Graph.parse('''heddle 1 local
    ... graph @g(%x: f32[512,512]) -> (%b) {
    ...   %a = aten.mm(%x, %x)
    ...   %b = aten.mm(%x, %x)
    ... }''')
    >>> before = heddle.Program(graph).simulate()
    >>> after = heddle.Program(graph, pipeline="dce").simulate()
    >>> comparison = after.compare(before)
    >>> comparison.saved > 0
    True
    """

    def __init__(self, before: Simulation, after: Simulation) -> None:
        self.before = before
        self.after = after
        self._text, self._json = after._simulated.comparison(before._simulated)

    @property
    def saved(self) -> float:
        """The time that the later step takes less, in seconds."""
        return self.before.step_time - self.after.step_time

    @property
    def difference(self) -> dict[str, Any]:
        """What `heddle report --json` prints as `difference`."""
        return dict(self._json["difference"])

    def show(self) -> None:
        """Opens the report of both steps in a browser."""
        _show(self._page())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the report of both steps as one HTML file."""
        Path(path).write_text(self._page(), encoding="utf-8")

    def _page(self) -> str:
        return self.after._simulated.page(self.before._simulated)

    def __str__(self) -> str:
        return str(self._text)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _FRAME.format(escape(self._page()))


class Simulation:
    """One step of a program on a cluster: times, memory, and why communication is exposed.

    >>> graph = heddle.Graph.parse('''heddle 1 local
    ... mesh [dp=8]
    ... graph @g(%x: bf16[4096,4096]) -> (%y, %z) {
    ...   %a = comm.all_gather(%x, over=[dp], why=unshard)
    ...   %y = comm.wait(%a)
    ...   %z = aten.mm(%x, %x)
    ... }''')
    >>> simulation = heddle.Program(graph, cluster="h100-8x").simulate()
    >>> simulation.step_time > simulation.exposed > 0
    True
    >>> simulation.peak_memory >= 4096 * 4096 * 2 * 9
    True
    >>> simulation.collectives[0]["kind"], simulation.collectives[0]["launches"]
    ('all_gather', 1)
    """

    def __init__(self, simulated: _core.Simulated) -> None:
        self._simulated = simulated
        self._json: dict[str, Any] = simulated.report()

    @property
    def step_time(self) -> float:
        """The time of the step, in seconds."""
        return _seconds(self._json["makespan_ms"])

    @property
    def compute_time(self) -> float:
        """The time in which compute runs, in seconds."""
        return _seconds(self._json["compute_ms"])

    @property
    def exposed(self) -> float:
        """The part of the step in which no compute runs, in seconds."""
        return _seconds(self._json["exposed_ms"])

    @property
    def lower_bound(self) -> float:
        """No schedule of the same nodes is faster than this, in seconds."""
        return _seconds(self._json["lower_bound_ms"])

    @property
    def peak_memory(self) -> int:
        """The peak of a rank's memory, in bytes."""
        return int(self._json["peak_bytes"])

    @property
    def mfu(self) -> float | None:
        """Model FLOP/s utilization; None for a graph without matrix products in forward."""
        mfu = self._json["mfu"]
        return None if mfu is None else float(mfu)

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens per second on all ranks; None for a graph without tokens."""
        tokens = self._json["tokens_per_second"]
        return None if tokens is None else float(tokens)

    @property
    def collectives(self) -> Table:
        """Collectives by phase, kind and purpose, with the reasons why they are exposed."""
        rows = [
            {
                "phase": row["phase"],
                "kind": row["kind"],
                "over": row["over"],
                "why": row["why"],
                "launches": row["count"],
                "bytes": row["bytes"],
                "time": _seconds(row["ms"]),
                "exposed": _seconds(row["exposed_ms"]),
                "because": {why: _seconds(ms) for why, ms in row["because_ms"].items()},
            }
            for row in self._json["collectives"]
        ]
        shown = dict.fromkeys(("phase", "kind", "over", "why", "launches"), "")
        return Table(rows, {**shown, "bytes": "bytes", "time": "seconds", "exposed": "seconds"})

    @property
    def memory(self) -> dict[str, Any]:
        """Where memory goes: the keys of `heddle plan --json`, in bytes."""
        return dict(self._simulated.memory())

    @property
    def report(self) -> dict[str, Any]:
        """All figures: what `heddle sim --json` prints."""
        return dict(self._json)

    def compare(self, before: Simulation | Program) -> Comparison:
        """This step compared with an earlier one."""
        return Comparison(before.simulate() if isinstance(before, Program) else before, self)

    def timeline(self) -> str:
        """Every kernel and collective, in order of time."""
        return self._simulated.timeline()

    def show(self) -> None:
        """Opens the report in a browser. In a notebook, the simulation itself shows it."""
        _show(self._simulated.page())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the report as one HTML file that needs no network."""
        Path(path).write_text(self._simulated.page(), encoding="utf-8")

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Writes a trace for Perfetto (ui.perfetto.dev) or chrome://tracing."""
        Path(path).write_text(self._simulated.trace(), encoding="utf-8")

    def __str__(self) -> str:
        return self._simulated.text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _FRAME.format(escape(self._simulated.page()))


class Program:
    """The graph that each rank runs.

    A global graph, of the whole step, needs a plan: the program is what the plan makes of it. A
    local graph is already a program.

    >>> step = heddle.Graph.parse('''heddle 1 global
    ... graph @step(%x: f32[8,16] batch "x", %w: f32[16,16] param 0 "up.weight" unit "up")
    ...     -> (loss %l) {
    ...   %y = aten.mm(%x, %w)
    ...   %l = aten.sum(%y)
    ... }''')
    >>> plan = heddle.Plan('''heddle plan 1
    ... mesh [dp=4]
    ... input "*" [dp]
    ... param "**" store [dp] compute [-]
    ... ''')
    >>> program = heddle.Program(step, plan)
    >>> [node.op for node in program.graph.nodes][:2]
    ['comm.all_gather', 'comm.wait']
    >>> program.pipeline, program.cluster
    ('fsdp', 'h100-8x')
    """

    def __init__(
        self,
        graph: Graph,
        plan: Plan | None = None,
        *,
        pipeline: str | GraphPass | Sequence[str | GraphPass] | None = None,
        cluster: str | None = None,
        costs: str | os.PathLike[str] = "",
        memory: str = "",
        checkpoint: str = "",
        constants: Mapping[str, Tensor] | None = None,
        hyper: Mapping[str, float] | None = None,
    ) -> None:
        """Compiles a graph.

        `pipeline`: passes after lowering (default: the plan's, or `fsdp`): a text, or a list of
        texts and of passes in Python (`heddle.graph_pass`). `cluster`: a name or a JSON file
        (default: the plan's, or `h100-8x`). `costs`: a file of measured times. `memory`:
        limit of a rank's memory, as `60GiB`; what backward recomputes is searched. `checkpoint`:
        `none`, `full`, `selective` or `min-cut`. `constants`: values of buffers that are no part of
        a model. `hyper`: defaults of values that change per step, as `lr`.
        """
        self.constants: Mapping[str, Tensor] = dict(constants or {})
        self.hyper: Mapping[str, float] = dict(hyper or {})
        # What the graph was captured from, and the whole step, for heddle.verify.
        self._source: Source | None = None
        # The plan and the pipeline of a program that was read from a file.
        self._loaded: tuple[Plan | None, str] | None = None
        self._step_graph: Graph | None = None
        first, rest = _split(pipeline, needs_text=plan is not None)
        self._compiled = _core.compile_graph(
            graph,
            plan,
            pipeline=first,
            cluster=cluster,
            costs=os.fspath(costs),
            memory=memory,
            checkpoint=checkpoint,
        )
        # Counts and remarks of passes in Python, by their number.
        self._in_python = [item for item in rest if not isinstance(item, str)]
        self._python: dict[int, tuple[dict[str, int], list[str]]] = {}
        for item in rest:
            if isinstance(item, str):
                self._compiled = _core.then_passes(self._compiled, item)
                continue
            self._compiled = _core.then_python_pass(
                self._compiled, item.name, item.numerics, item._edited
            )
            number = self._compiled.passes()[-1]["number"]
            self._python[number] = (item.counts, item.remarks)

    @property
    def graph(self) -> Graph:
        """The graph of a rank."""
        return self._compiled.graph

    @property
    def plan(self) -> Plan | None:
        """The complete plan; None for a graph that was local already."""
        return self._compiled.plan if self._loaded is None else self._loaded[0]

    @property
    def pipeline(self) -> str:
        """The name or text of the pipeline."""
        return self._compiled.name if self._loaded is None else self._loaded[1]

    @property
    def cluster(self) -> str:
        """The cluster whose prices passes and simulations use."""
        return self._compiled.cluster

    @property
    def notes(self) -> list[str]:
        """Settings that had no effect."""
        return self._compiled.notes

    @property
    def passes(self) -> Table:
        """The passes that made the graph, in order: what each did, declined and cost."""
        rows = []
        for row in self._compiled.passes():
            counts, remarks = row["counts"], row["remarks"]
            if row["number"] in self._python:
                counts, remarks = self._python[row["number"]]
            launches, peak = row.get("launches", (None, None)), row.get("peak_memory", (None, None))
            rows.append(
                {
                    "name": row["name"].partition("{")[0],
                    "text": row["name"],
                    "changed": row["changed"],
                    "time": row["seconds"],
                    "launches_before": launches[0],
                    "launches": launches[1],
                    "peak_memory_before": peak[0],
                    "peak_memory": peak[1],
                    "declined": len(remarks),
                    "counts": counts,
                    "remarks": remarks,
                }
            )
        shown = {"name": "", "changed": "", "time": "seconds", "launches": ""}
        return Table(rows, {**shown, "peak_memory": "bytes", "declined": ""})

    def simulate(self, *, slowdown: float | None = None, tokens: int | None = None) -> Simulation:
        """Simulates one step on the cluster.

        `slowdown`: share by which compute is slower while a collective is in flight (default: the
        cluster's). `tokens`: tokens of a step on all ranks (default: from the graph).
        """
        return Simulation(self._compiled.simulate(slowdown=slowdown, tokens=tokens))

    def to_fx(self, mesh: DeviceMesh) -> GraphModule:
        """This rank's graph as a `torch.fx.GraphModule` of ATen and `_c10d_functional` ops.

        `mesh` has the axes of the program; all its ranks call this. The module takes this rank's
        parts of the inputs, and returns the outputs in the order of `graph`. It writes to nothing.
        `heddle.from_fx` reads it back.

        >>> import torch.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> mesh = dist.init_device_mesh("cpu", (1,), mesh_dim_names=("dp",))
        >>> program = heddle.Program(heddle.Graph.parse('''heddle 1 local
        ... mesh [dp=1]
        ... graph @g(%x: f32[2,8]) -> (%y) {
        ...   %a = comm.all_gather(%x, over=[dp], why=unshard)
        ...   %y = comm.wait(%a)
        ... }'''))
        >>> gm = program.to_fx(mesh)
        >>> [node.name for node in gm.graph.nodes]
        ['x', 'all_gather_into_tensor_default', 'wait_tensor_default', 'output']
        >>> heddle.from_fx(gm) == program.graph
        True
        >>> dist.destroy_process_group()
        """
        from ._groups import Groups, place_on
        from ._to_fx import write_fx

        place = place_on(mesh, self.graph.mesh)
        return write_fx(self._packed(), place, Groups(mesh, place), mesh.device_type)

    def _packed(self) -> Graph:
        """The graph with collectives as c10d has them."""
        return _core.run_pipeline(self.graph, "pack-collectives", cluster=self.cluster)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the program to a file, which `Program.load` reads without capture.

        The file has the graph of a rank, the plan and values that capture found, but no weights.

        >>> import tempfile
        >>> program = heddle.Program(heddle.Graph.parse('''heddle 1 local
        ... graph @g(%x: f32[2,8]) -> (%y) {
        ...   %y = aten.relu(%x)
        ... }'''), cluster="a100-8x")
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     program.save(file.name)
        ...     again = heddle.Program.load(file.name)
        >>> again.graph == program.graph, again.cluster
        (True, 'a100-8x')
        """
        from ._program_file import write

        write(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Program:
        """Reads what `save` wrote. It has no module, so `heddle.verify` refuses it."""
        from ._program_file import read

        return read(path)

    def start(
        self,
        mesh: DeviceMesh | None = None,
        *,
        weights: Any = None,
        device: str | torch.device | None = None,
    ) -> Run:
        """Starts the program on this process's rank; see `heddle.Run`.

        `mesh` has the axes of the program; a program of one rank needs none. `weights`: a module,
        or whole tensors by name; without them, all are zero until `Run.load`. `device`: that of a
        program without a mesh, as `cuda`, which runs with Heddle's own kernels.
        """
        from .running import Run

        return Run(self, mesh, weights=weights, device=device)

    def __repr__(self) -> str:
        mesh = ", ".join(f"{axis}={size}" for axis, size in self.graph.mesh.items())
        return (
            f"<heddle.Program @{self.graph.name}: [{mesh}], {len(self.graph):,} nodes, "
            f"pipeline {self.pipeline}, cluster {self.cluster}>"
        )

    def _repr_html_(self) -> str:
        return program_html(self)
