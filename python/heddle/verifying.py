"""Verification of a program, link by link: from eager PyTorch to FX graphs in processes."""

from __future__ import annotations

import copy
import inspect
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from . import _core
from ._core import Graph, Node, Output, Plan, Value
from ._explain import Line, lines_of
from ._leaves import flatten_batch
from ._parts import Layout, Place, fail, same_bits
from ._rich import Progress
from .errors import Diagnostic, Error, RunError
from .table import Table
from .testing import repeatable, run_ranks

if TYPE_CHECKING:
    from ._source import Source
    from .program import Program

__all__ = ["Link", "Verification", "verify"]

# The largest difference after sums were regrouped, relative to the largest element.
_TOLERANCES = {"f64": 1e-12, "c128": 1e-12, "f32": 1e-4, "c64": 1e-4, "f16": 1e-2, "bf16": 5e-2}
_SEED = 7
Key = tuple[str | None, int | None, str]


@dataclass(frozen=True)
class Link:
    """One claim of a verification, and what was found.

    >>> from heddle.verifying import Link
    >>> print(Link("eager = captured", "same bits", "loss, 2 gradients"))
    eager = captured             same bits      loss, 2 gradients
    """

    claim: str
    result: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.claim:28} {self.result:14} {self.detail}".rstrip()


class Verification:
    """The links of a verification; all of them hold, or `verify` would have raised.

    >>> from heddle.verifying import Link, Verification
    >>> Verification([Link("planned = scheduled", "same bits")]).links[0].result
    'same bits'
    """

    def __init__(self, links: Sequence[Link]) -> None:
        self.links = list(links)

    def __repr__(self) -> str:
        return "\n".join(map(str, self.links))

    def _repr_html_(self) -> str:
        return Table([vars(link) for link in self.links])._repr_html_()


def _key(graph: Graph, output: Output) -> Key:
    target = output.target
    if target is None:
        return output.role, output.index, output.label
    return output.role, target.index, f"{target.role} {target.label}"


def _shown(key: Key, graph: Graph) -> str:
    role, index, label = key
    if role == "grad":
        names = {v.index: v.label for v in graph.inputs if v.role == "param"}
        return f"the gradient of `{names.get(index, index)}`"
    return f"the {role or 'output'}{f' `{label}`' if label else ''}"


class _Verifier:
    def __init__(self, program: Program, batch: Any, source: Source, whole: Graph) -> None:
        self.program = program
        self.source = source
        self.whole = whole
        self.batch = batch
        state = {
            **dict(source.model.named_parameters(remove_duplicate=False)),
            **dict(source.model.named_buffers(remove_duplicate=False)),
            **program.constants,
        }
        rows = {leaf.label: leaf.tensor for leaf in flatten_batch(batch).leaves}
        self.wholes = [self._whole_input(value, state, rows) for value in whole.inputs]
        mesh = program.graph.mesh
        self.places = [Place(mesh, at) for at in Place.all(mesh)]

    def _whole_input(
        self, value: Value, state: Mapping[str, Tensor], rows: Mapping[str, Tensor]
    ) -> Tensor:
        layout = Layout.parse(value.type)
        given = {"batch": rows, "param": state, "buffer": state}.get(value.role or "", {})
        tensor = given.get(value.label)
        if tensor is None and value.role in ("batch", "param", "buffer"):
            raise fail("verify", f"no values for the {value.role} `{value.label}`")
        if tensor is None:
            number = {"lr": 1e-3, **self.program.hyper, "step": 1.0}.get(value.label, 0.0)
            return torch.full(layout.sizes, number if value.role == "hyper" else 0.0).to(
                layout.dtype
            )
        if tensor.device.type == "meta":
            raise fail("verify", f"`{value.label}` is on meta and has no values")
        if tuple(tensor.shape) != layout.sizes or tensor.dtype != layout.dtype:
            has = f"{tensor.dtype}{list(tensor.shape)}"
            message = f"`{value.label}` is {has}, expected {layout.dtype}{list(layout.sizes)}"
            raise fail("verify", message)
        # As a run keeps them, whatever the strides of the module's.
        return tensor.detach().contiguous()

    def run(self, graph: Graph, reducer: str) -> list[list[Tensor]]:
        """The outputs of each rank of a local graph."""
        torch.manual_seed(_SEED)
        return run_ranks(graph, self.inputs(graph), reducer=reducer)

    def inputs(self, graph: Graph) -> list[list[Tensor]]:
        layouts = [Layout.parse(value.whole or "") for value in graph.inputs]
        if len(layouts) != len(self.wholes):
            raise self.broken("planned", "the program has other inputs than the step")
        return [
            [layout.part(w, place) for layout, w in zip(layouts, self.wholes, strict=True)]
            for place in self.places
        ]

    # --- Links

    def eager_is_captured(self) -> Link:
        claim = "eager = captured"
        if self.source.param_dtype is not None:
            return Link(claim, "not compared", "param_dtype casts where eager does not")
        torch.manual_seed(_SEED)
        self.captured = run_ranks(self.whole, [self.wholes])[0]
        model = self._copy()
        for parameter in model.parameters():
            parameter.data = parameter.data.contiguous()
        torch.manual_seed(_SEED)
        value = self.source.compute(model, copy.deepcopy(self.batch))
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        grads = torch.autograd.grad(value, list(named.values()), allow_unused=True)
        wanted: dict[Key, Tensor] = {("loss", None, ""): value.detach().reshape(())}
        indices = {v.label: v.index for v in self.whole.inputs if v.role == "param"}
        for name, grad in zip(named, grads, strict=True):
            if grad is not None:
                wanted["grad", indices[name], ""] = grad
        for name, buffer in model.named_buffers():
            wanted["update", None, f"buffer {name}"] = buffer
        count = 0
        for output, got in zip(self.whole.outputs, self.captured, strict=True):
            key = _key(self.whole, output)
            if key not in wanted:
                continue
            count += output.role == "grad"
            if not same_bits(wanted[key], got):
                what = _shown(key, self.whole)
                message = f"{what} differs: {_numbers(wanted[key], got)}"
                raise self.broken(claim, message, output.value.producer)
        return Link(claim, "same bits", f"loss, {count} gradients")

    def _copy(self) -> nn.Module:
        try:
            return copy.deepcopy(self.source.model)
        except Exception as error:
            raise fail(
                "verify",
                f"the model cannot be copied: {str(error).splitlines()[0]}",
                "its `__deepcopy__` or a tensor that is computed in `__init__` may be the cause",
            ) from error

    def captured_is_planned(self) -> Link:
        claim = "captured ~ planned"
        if not hasattr(self, "captured"):
            torch.manual_seed(_SEED)
            self.captured = run_ranks(self.whole, [self.wholes])[0]
        self.planned = self._planned()
        self.planned_outputs = self.run(self.planned, "rank")
        wholes = {
            _key(self.planned, output): self._assemble(claim, output, i)
            for i, output in enumerate(self.planned.outputs)
        }
        worst = 0.0
        limits = _limits(self.whole)
        floors = _floors(self.whole, self.captured)
        one = len(self.places) == 1
        for output, want in zip(self.whole.outputs, self.captured, strict=True):
            key = _key(self.whole, output)
            got = wholes.get(key)
            what = _shown(key, self.whole)
            if got is None or got.shape != want.shape or got.dtype != want.dtype:
                raise self.broken(claim, f"{what} is missing, or of another type", None)
            if one and not same_bits(want, got):
                raise self.broken(claim, f"{what} differs: {_numbers(want, got)}")
            error = _relative(want, got, floors.get(_group(output), 0.0))
            limit = limits[output.value.name]
            if output.role == "update" and output.target and output.target.role == "param":
                # Adam divides by the size of a gradient, so a rounding error may be a whole step.
                limit += self._step_size() / max(want.abs().max().item(), 1e-30)
            if not error <= limit:
                message = f"{what} differs by {error:.1e}, more than {limit:.0e}"
                raise self.broken(claim, message, self._node_of(key))
            worst = max(worst, error)
        shown = "same bits" if worst == 0.0 else f"{worst:.1e}"
        return Link(claim, shown, "" if worst == 0.0 else "sums over ranks")

    def planned_is_scheduled(self) -> Link:
        claim = "planned = scheduled"
        graph = self.program.graph
        outputs = self.run(graph, "rank")
        found = self._first_difference(self.planned, self.planned_outputs, graph, outputs)
        if found is not None:
            rank, key, was, now = found
            first = self._first_pass()
            at = f" after pass {first[0]}" if first else ""
            what = f"{_shown(key, self.whole)} on rank {rank} differs{at}"
            node = self._first_node(self.planned, first[1] if first else graph)
            raise self.broken(claim, f"{what}: {_numbers(was, now)}", node)
        count = sum(len(rank) for rank in outputs)
        return Link(claim, "same bits", f"{len(outputs)} ranks, {count} tensors")

    def scheduled_is_fx(self, processes: bool) -> Link:
        claim = "scheduled = FX in processes"
        if not processes:
            return Link(claim, "not compared", "(processes=True)")
        graph = self.program.graph
        want = self.run(graph, "gloo")
        got = run_fx(self.program, self.inputs(graph))
        found = self._first_difference(graph, want, graph, got)
        if found is not None:
            rank, key, was, now = found
            what = f"{_shown(key, self.whole)} on rank {rank}"
            raise self.broken(claim, f"{what} differs: {_numbers(was, now)}", self._node_of(key))
        return Link(claim, "same bits", f"{len(want)} processes")

    # --- Parts

    def _step_size(self) -> float:
        return 4 * float(self.program.hyper.get("lr", 0.0))

    def _planned(self) -> Graph:
        from .program import Program

        plan = self.program.plan
        if plan is None:
            raise fail("verify", "the program has no plan; capture and plan the step")
        # What a search found states its pipeline, which is not that of this link.
        lines = str(plan).splitlines(keepends=True)
        plan = Plan("".join(line for line in lines if not line.startswith("pipeline ")))
        return Program(self.whole, plan, pipeline="clean", cluster=self.program.cluster).graph

    def _assemble(self, claim: str, output: Output, index: int) -> Tensor:
        layout = Layout.parse(output.whole)
        parts = [rank[index] for rank in self.planned_outputs]
        whole = torch.empty(layout.sizes, dtype=parts[0].dtype)
        written: dict[tuple[int, ...], Tensor] = {}
        summed = [axis[1:] for axis in layout.partial if axis.startswith("+")]
        for place, part in zip(self.places, parts, strict=True):
            view = layout.view(whole, place)
            if view.shape != part.shape:
                what = _shown(_key(self.planned, output), self.whole)
                message = f"{what}: a part has {list(part.shape)}, expected {list(view.shape)}"
                raise self.broken(claim, message)
            at = tuple(place.coordinates[axis] for axis in layout.split)
            first = all(place.coordinates[axis] == 0 for axis in summed)
            if summed and not first:
                view.add_(part)
            elif at not in written:
                view.copy_(part)
                written[at] = part
            elif not summed and not same_bits(written[at], part):
                what = _shown(_key(self.planned, output), self.whole)
                raise self.broken(claim, f"{what} differs between ranks that replicate it")
        return whole

    def _first_difference(
        self, before: Graph, olds: list[list[Tensor]], after: Graph, news: list[list[Tensor]]
    ) -> tuple[int, Key, Tensor, Tensor] | None:
        positions = {_key(before, output): i for i, output in enumerate(before.outputs)}
        for rank, new in enumerate(news):
            for output, now in zip(after.outputs, new, strict=True):
                key = _key(after, output)
                was = olds[rank][positions[key]]
                if not same_bits(was, now):
                    return rank, key, was, now
        return None

    def _first_pass(self) -> tuple[str, Graph] | None:
        """The first pass of the pipeline after which some bit differs, and its graph."""
        in_python = {item.name: item for item in self.program._in_python}
        graph = self.planned
        for row in self.program.passes:
            run = in_python.get(row["name"])
            try:
                if run is not None:
                    graph = run._run(graph, self.program.cluster)
                else:
                    graph = _core.run_pipeline(graph, row["text"], cluster=self.program.cluster)
            except Error:
                # A pass of the global graph, before lowering.
                continue
            outputs = self.run(graph, "rank")
            if self._first_difference(self.planned, self.planned_outputs, graph, outputs):
                return row["name"], graph
        return None

    def _first_node(self, before: Graph, after: Graph) -> Node | None:
        """The first node of the later graph whose value of the same name differs."""
        names = {v.name for node in before.nodes for v in node.results}
        nodes = [
            node
            for node in after.nodes
            if all(
                v.name in names and not v.type.startswith(("async", "none")) for v in node.results
            )
        ]
        wanted = [value.name for node in nodes for value in node.results]
        try:
            olds = self.run(_with_outputs(before, wanted), "rank")
            news = self.run(_with_outputs(after, wanted), "rank")
        except Error:
            # A value whose storage an update takes over cannot be an output.
            return None
        for node, i in _with_positions(nodes):
            for old, new in zip(olds, news, strict=True):
                a = old[len(before.outputs) + i]
                b = new[len(after.outputs) + i]
                if a.shape == b.shape and not same_bits(a, b):
                    return node
        return None

    def _node_of(self, key: Key) -> Node | None:
        for output in self.program.graph.outputs:
            if _key(self.program.graph, output) == key:
                return output.value.producer
        return None

    def _line_of(self, node: Node) -> Line | None:
        """The user's line of the nearest node that the captured step has, too."""
        from .capturing import trace_step

        try:
            captured = trace_step(
                self.source.model,
                self.batch,
                loss=self.source.loss,
                param_dtype=self.source.param_dtype,
                kwargs=self.source.kwargs,
                allow_unused=True,
                stack_traces=True,
            )
        except Error:
            # The mistake that was found is the one to report.
            return None
        lines = lines_of(captured.graph_module)
        queue = [node]
        seen = {node}
        for one in queue:
            for value in one.results:
                if value.name in lines:
                    return lines[value.name]
            producers = [value.producer for value in one.operands if value is not None]
            new = [producer for producer in producers if producer and producer not in seen]
            seen.update(new)
            queue += new
        return None

    def broken(self, claim: str, message: str, node: Node | None = None) -> RunError:
        """The error of a link that does not hold."""
        text = f"{claim}: {message}"
        file, line, source = None, 0, ""
        if node is not None:
            text += f"; first at {str(node).split(' : ')[0].strip()}"
            if node.scope:
                text += f" of {node.scope}"
            file, line, source = self._line_of(node) or _written_at(self.source.model, node.scope)
        return RunError("", [Diagnostic("verify", text, file, line, 0, source)])


def _with_positions(nodes: Sequence[Node]) -> Iterator[tuple[Node, int]]:
    position = 0
    for node in nodes:
        for _ in node.results:
            yield node, position
            position += 1


def _with_outputs(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph with more outputs."""
    lines = str(graph).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("graph @"))
    body = next(i for i in range(at, len(lines)) if lines[i].rstrip().endswith(") {"))
    plain = all(output.role is None for output in graph.outputs)
    more = [f"%{name}" if plain else f'metric "{name}" %{name}' for name in names]
    outputs = [*(str(output) for output in graph.outputs), *more]
    inputs = ", ".join(str(value) for value in graph.inputs)
    signature = f"graph @{graph.name}({inputs}) -> ({', '.join(outputs)}) {{"
    return Graph.parse("\n".join([*lines[:at], signature, *lines[body + 1 :], ""]))


def _written_at(model: nn.Module, scope: str) -> tuple[str | None, int, str]:
    """The file, line and text of the `forward` of a module."""
    try:
        forward = type(model.get_submodule(scope)).forward
        file = inspect.getsourcefile(forward)
        lines, first = inspect.getsourcelines(forward)
    except (AttributeError, OSError, TypeError):
        return None, 0, ""
    return file, first, lines[0].strip()


def _limits(graph: Graph) -> dict[str, float]:
    """The largest difference of each value: that of the coarsest type it was computed from.

    Models compute norms in f32 and losses of f32 from bf16, whatever the type of the result.
    """
    limits = {value.name: _TOLERANCES.get(value.dtype, 0.0) for value in graph.inputs}
    for node in graph.nodes:
        limit = max((limits[value.name] for value in node.operands if value), default=0.0)
        for value in node.results:
            limits[value.name] = max(limit, _TOLERANCES.get(value.dtype, 0.0))
    return limits


def _group(output: Output) -> str:
    """Outputs that are compared at one scale: gradients, and each kind of optimizer state."""
    if output.target is not None and output.target.role == "opt":
        return str(output.target.label)
    return "grad" if output.role == "grad" else ""


def _floors(graph: Graph, values: Sequence[Tensor]) -> dict[str, float]:
    """The least scale of each group: a thousandth of its largest element.

    The gradient of a bias before a normalization is zero but for rounding errors.
    """
    floors: dict[str, float] = {}
    for output, value in zip(graph.outputs, values, strict=True):
        group = _group(output)
        if group and value.numel() > 0:
            largest = torch.nan_to_num(value.abs(), nan=0.0, posinf=0.0).max().item()
            floors[group] = max(floors.get(group, 0.0), float(largest) / 1024)
    return floors


def _relative(want: Tensor, got: Tensor, floor: float) -> float:
    if want.numel() == 0 or same_bits(want, got):
        return 0.0
    wide = torch.complex128 if want.is_complex() else torch.float64
    a, b = want.to(wide), got.to(wide)
    difference = (a - b).abs()
    # NaN compares as a difference, unless both have it.
    both = torch.isnan(a.abs()) & torch.isnan(b.abs())
    worst = torch.where(both, torch.zeros_like(difference), difference).max().item()
    scale = torch.nan_to_num(a.abs(), nan=0.0, posinf=0.0).max().item()
    return float(worst) / max(float(scale), floor, 1e-30)


def _numbers(was: Tensor, now: Tensor) -> str:
    if was.shape != now.shape or was.dtype != now.dtype:
        return f"{was.dtype}{list(was.shape)} and {now.dtype}{list(now.shape)}"
    a, b = was.contiguous(), now.contiguous()
    size = max(a.element_size(), 1)
    bits = a.reshape(-1).view(torch.uint8) != b.reshape(-1).view(torch.uint8)
    at = int(bits.nonzero()[0]) // size
    count = int(bits.view(-1, size).any(1).sum())
    first, second = a.reshape(-1)[at].item(), b.reshape(-1)[at].item()
    return f"{count} of {a.numel()} elements, first [{at}]: {first!r} and {second!r}"


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]


def run_fx(program: Program, inputs: list[list[Tensor]]) -> list[list[Tensor]]:
    """Runs the FX graphs of all ranks in processes over Gloo."""
    with tempfile.TemporaryDirectory(prefix="heddle-") as folder:
        job = {
            "graph": str(program.graph),
            "cluster": program.cluster,
            "inputs": inputs,
            "threads": torch.get_num_threads(),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "one_dnn": torch.backends.mkldnn.enabled,
        }
        torch.save(job, Path(folder, "job"))
        command = [sys.executable, "-m", "heddle._fx_rank", folder]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise fail("fx", f"the ranks did not start: {_last_line(done.stderr)}")
        for rank, code in enumerate(json.loads(Path(folder, "codes").read_text())):
            if code != 0:
                error = Path(folder, f"error-{rank}").read_text()
                raise fail("fx", f"rank {rank} ended with {code}: {_last_line(error)}")
        return [torch.load(Path(folder, f"rank-{n}")) for n in range(len(inputs))]


def verify(program: Program, batch: Any, *, processes: bool = False) -> Verification:
    """Runs a captured step in every form that it takes, and compares each with the one before.

    - eager = captured: the bits of loss, gradients and buffers, on one rank.
    - captured ~ planned: ranks regroup sums, so a small difference is allowed; none on one rank.
    - planned = scheduled: the bits of every output on every rank, before and after the passes.
    - scheduled = FX in processes: the bits of `to_fx` over Gloo, with `processes=True`.

    All ranks run in this process. A link that does not hold raises a `RunError`, which names the
    tensor, the pass, the first node that differs, its module, and its line in the user's files.
    `batch` is a whole batch.

    >>> import torch
    >>> model = torch.nn.Linear(4, 2)
    >>> batch = {"input": torch.randn(8, 4)}
    >>> step = heddle.capture(model, batch, loss=lambda m, b: m(**b).square().mean())
    >>> from importlib.util import find_spec
    >>> if find_spec("heddle._torch"):
    ...     links = heddle.verify(step.compile(step.plan("dp=2")), batch).links
    ...     assert [link.result for link in links][::2] == ["same bits", "same bits"]
    """
    source, whole = program._source, program._step_graph
    if source is None or whole is None:
        hint = "compile the step that `heddle.capture` gives"
        raise fail("verify", "the program was not captured from a module", hint)
    # oneDNN runs a whole LSTM as one op, with other bits than its parts, which capture records.
    one_dnn = torch.backends.mkldnn.flags(enabled=False, deterministic=False, allow_tf32=None)
    with repeatable(), one_dnn, torch.random.fork_rng(devices=[]), Progress("verify") as progress:
        verifier = _Verifier(program, batch, source, whole)
        links: list[Link] = []
        for check in (
            verifier.eager_is_captured,
            verifier.captured_is_planned,
            verifier.planned_is_scheduled,
            lambda: verifier.scheduled_is_fx(processes),
        ):
            links.append(check())
            progress(len(links), 4, links[-1].claim)
        return Verification(links)
