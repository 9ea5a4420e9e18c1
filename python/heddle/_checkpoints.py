"""Checkpoints of runs in Heddle's format, with the state of optimizers of torch."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from . import _core
from ._parts import DTYPE_NAMES, Layout, Place, fail

__all__ = ["Opened", "Saver", "of_optimizer", "open_same", "prepare", "read"]

_WAIT_SECONDS = 300
Tensors = Mapping[str, tuple[Tensor, Layout]]


def _same_everywhere(value: Any, mesh: Any) -> Any:
    """Rank 0's value."""
    if mesh is None:
        return value
    values = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]


class Saver:
    """Writes the checkpoints of one run."""

    def __init__(self, folder: str, mesh: Any, keep: int, begin_step: int) -> None:
        self.folder = folder
        self._mesh = mesh
        world, rank = (1, 0) if mesh is None else (dist.get_world_size(), dist.get_rank())
        self._rank = rank
        run = _same_everywhere(uuid.uuid4().hex, mesh)
        options: dict[str, Any] = {
            "world": world,
            "keep": keep,
            "begin_step": begin_step,
            "run": run,
            "timeout": _WAIT_SECONDS,
        }
        problem = None
        # Rank 0 takes the lock before any other rank writes.
        if rank == 0:
            try:
                self._writer = _core.CheckpointWriter(folder, rank=0, texts=[], **options)
            except _error() as error:
                problem = str(error)
        problem = _same_everywhere(problem, mesh)
        if problem is not None:
            raise fail("checkpoint", problem)
        if rank != 0:
            self._writer = _core.CheckpointWriter(folder, rank=rank, texts=[], **options)

    def save(self, step: int, state: Mapping[str, Any], tensors: Tensors, place: Place) -> None:
        pieces = []
        # Tensors on a device are copied; the copies live until they are saved.
        kept = []
        for name, (tensor, layout) in tensors.items():
            if not _saves(layout, place):
                continue
            part = tensor.detach().cpu().contiguous()
            kept.append(part)
            offset = [
                place.part(size, axes)[0]
                for size, axes in zip(layout.sizes, layout.axes, strict=True)
            ]
            pieces.append(
                (
                    name,
                    DTYPE_NAMES[layout.dtype],
                    list(layout.sizes),
                    offset,
                    list(part.shape),
                    part.data_ptr(),
                    self._rank,
                )
            )
        self._writer.save(step, json.dumps(state, sort_keys=True), pieces)
        self._writer.finish()
        if self._mesh is not None:
            dist.barrier()


def _error() -> type[Exception]:
    from .errors import RunError

    return RunError


def _saves(layout: Layout, place: Place) -> bool:
    """Whether this rank is the first that holds its part."""
    return all(at == 0 or axis in layout.split for axis, at in place.coordinates.items())


class Opened:
    """A whole checkpoint."""

    def __init__(self, reader: _core.Checkpoint) -> None:
        self.reader = reader
        self.state: dict[str, Any] = json.loads(reader.state)
        if "step" not in self.state:
            self.state["step"] = reader.step


def open_same(folder: str, step: int | None, mesh: Any) -> Opened:
    """The same checkpoint on all ranks: the one that rank 0 finds."""
    problem, found = None, None
    if mesh is None or dist.get_rank() == 0:
        try:
            found = _core.Checkpoint(folder, step)
        except _error() as error:
            problem = str(error)
    problem, step = _same_everywhere((problem, found.step if found else None), mesh)
    if problem is not None:
        raise fail("checkpoint", problem)
    return Opened(found or _core.Checkpoint(folder, step))


def read(checkpoint: Opened, tensors: Tensors, place: Place) -> None:
    """Reads this rank's parts; the checkpoint must have exactly these tensors."""
    expected = [
        (name, DTYPE_NAMES[layout.dtype], list(layout.sizes))
        for name, (_, layout) in tensors.items()
    ]
    checkpoint.reader.check(expected)
    for name, (tensor, layout) in tensors.items():
        sizes = layout.local_sizes(place)
        offset = [
            place.part(size, axes)[0] for size, axes in zip(layout.sizes, layout.axes, strict=True)
        ]
        part = torch.empty(sizes, dtype=layout.dtype)
        if part.numel() > 0:
            checkpoint.reader.read(name, offset, list(sizes), part.data_ptr())
        with torch.no_grad():
            tensor.copy_(part)


def of_optimizer(
    optimizer: torch.optim.Optimizer, names: Mapping[int, str], layouts: Mapping[str, Layout]
) -> tuple[dict[str, tuple[Tensor, Layout]], dict[str, Any]]:
    """The state of an optimizer: tensors like their parameters, and everything else."""
    tensors: dict[str, tuple[Tensor, Layout]] = {}
    scalars: dict[str, dict[str, Any]] = {}
    groups = []
    for group in optimizer.param_groups:
        options = {key: value for key, value in group.items() if key != "params"}
        members = []
        for parameter in group["params"]:
            name = names.get(id(parameter))
            if name is None:
                raise fail("optimizer", "the optimizer has a parameter that is none of this run")
            members.append(name)
            for key, value in optimizer.state.get(parameter, {}).items():
                layout = layouts[name]
                if isinstance(value, Tensor) and value.shape == parameter.shape and value.dim() > 0:
                    own = Layout(value.dtype, layout.sizes, layout.axes)
                    tensors[f"{name}.optimizer.{key}"] = (value, own)
                elif isinstance(value, Tensor) and value.numel() == 1:
                    scalars.setdefault(name, {})[key] = {
                        "value": value.item(),
                        "dtype": DTYPE_NAMES[value.dtype],
                    }
                elif value is None or isinstance(value, (bool, int, float, str)):
                    scalars.setdefault(name, {})[key] = value
                else:
                    raise fail(
                        "optimizer",
                        f"its state `{key}` of `{name}` is not like the parameter: it does not "
                        "work element by element",
                    )
        groups.append({"params": members, **{k: _plain(v) for k, v in options.items()}})
    kinds = {name: DTYPE_NAMES[layout.dtype] for name, (_, layout) in tensors.items()}
    return tensors, {"groups": groups, "scalars": scalars, "tensors": kinds}


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.item()
    return list(value) if isinstance(value, tuple) else value


def prepare(
    optimizer: torch.optim.Optimizer, state: Mapping[str, Any], names: Mapping[int, str]
) -> None:
    """Gives an optimizer the state that a checkpoint has, with tensors still to be read."""
    from ._parts import DTYPES

    saved = state.get("optimizer")
    if saved is None:
        raise fail("checkpoint", "the checkpoint has no state of an optimizer of torch")
    options = {name: group for group in saved["groups"] for name in group["params"]}
    kinds: Mapping[str, str] = saved["tensors"]
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            name = names.get(id(parameter))
            if name is None or name not in options:
                raise fail("optimizer", f"the checkpoint has no optimizer state of `{name}`")
            own: dict[str, Any] = {}
            for key, value in saved["scalars"].get(name, {}).items():
                if isinstance(value, dict):
                    own[key] = torch.tensor(value["value"], dtype=DTYPES[value["dtype"]])
                else:
                    own[key] = value
            prefix = f"{name}.optimizer."
            for full, kind in kinds.items():
                if full.startswith(prefix):
                    own[full.removeprefix(prefix)] = torch.zeros_like(parameter, dtype=DTYPES[kind])
            if own:
                optimizer.state[parameter] = own
        if group["params"]:
            now = options[names[id(group["params"][0])]]
            for key, value in now.items():
                if key != "params" and key in group:
                    group[key] = tuple(value) if isinstance(group[key], tuple) else value
