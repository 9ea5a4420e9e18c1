"""Runs: a program on this process's rank, with its parts of parameters and optimizer state."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from . import _checkpoints
from ._core import Value
from ._device import DeviceProgram
from ._groups import Groups, place_on
from ._leaves import flatten_batch
from ._parts import DTYPE_NAMES, Layout, Place, fail
from ._to_fx import write_fx
from .errors import CaptureError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from .program import Program

__all__ = ["Run"]


def _state_name(value: Value, parameters: Mapping[int | None, str]) -> str:
    """The name of an input's tensor in checkpoints: `up.weight`, `up.weight.exp_avg`."""
    if value.role == "opt":
        return f"{parameters[value.index]}.{value.label}"
    return value.label


def _alone(
    program: Program, place: Place, device: torch.device
) -> Callable[..., Sequence[Tensor]]:
    """A program of one rank, on Heddle's own runtime where that is installed: the same bits."""
    try:
        from . import _torch
    except ImportError:
        module: Callable[..., Sequence[Tensor]] = write_fx(
            program._packed(), place, None, str(device)
        )
        return module
    if device.type == "cuda":
        return DeviceProgram(program.graph, device)
    world = _torch.World(str(program.graph))
    return lambda *inputs: world.run([list(inputs)])[0]


def _opened(device: str | torch.device | None) -> torch.device:
    """A device with its number."""
    try:
        found = torch.device(device or "cpu")
    except RuntimeError as error:
        raise fail("device", f"{device!r} is not a device: {str(error).splitlines()[0]}") from None
    if found.type not in ("cpu", "cuda"):
        raise fail("device", f"the device is {found}, expected cpu or cuda")
    if found.type == "cpu":
        return found
    if not torch.cuda.is_available():
        raise fail("device", f"the device is {found}, and torch finds no GPU here")
    return found if found.index is not None else torch.device("cuda", torch.cuda.current_device())


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _owns(tensor: Tensor, users: Mapping[int, int]) -> bool:
    """Whether a result is all of its storage, and no other tensor has it."""
    return users[_storage(tensor)] == 1 and tensor.untyped_storage().nbytes() == tensor.nbytes


class Run:
    """A program on one rank: call it with a batch for one step.

    Without an optimizer in the graph, the call adds to `.grad` of `parameters()`, and any optimizer
    of torch that works element by element does the rest. With one, the call is the whole step.

    >>> import torch
    >>> model = torch.nn.Linear(4, 1)
    >>> batch = {"input": torch.ones(8, 4)}
    >>> step = heddle.capture(model, batch, loss=lambda m, b: m(**b).sum())
    >>> run = step.compile(step.plan("dp=1")).start(weights=model)
    >>> optimizer = torch.optim.SGD(run.parameters(), lr=0.1)
    >>> loss = run(batch)
    >>> [tuple(parameter.grad.shape) for parameter in run.parameters()]
    [(1, 4), (1,)]
    >>> optimizer.step()
    >>> bool(run(batch) < loss)
    True
    """

    def __init__(
        self,
        program: Program,
        mesh: DeviceMesh | None = None,
        *,
        weights: Any = None,
        device: str | torch.device | None = None,
    ) -> None:
        """`weights`: a module, or whole tensors by name. Without them all are zero until `load`.

        `device`: that of a program of one rank without a mesh, as `cuda` (default: `cpu`).
        """
        self._program = program
        self._mesh = mesh
        sizes = program.graph.mesh
        if mesh is None:
            ranks = 1
            for size in sizes.values():
                ranks *= size
            if ranks != 1:
                raise fail("mesh", f"the program is for {ranks} ranks; give a DeviceMesh")
            self._place = Place(sizes, dict.fromkeys(sizes, 0))
            self._groups: Groups | None = None
            self._device = _opened(device)
            self._module = _alone(program, self._place, self._device)
        else:
            if device is not None:
                raise fail("device", "a mesh and a device are given", "the mesh states the device")
            self._place = place_on(mesh, sizes)
            self._groups = Groups(mesh, self._place)
            self._device = _opened(mesh.device_type)
            self._module = program.to_fx(mesh)
        self._inputs = list(program.graph.inputs)
        self._outputs = list(program.graph.outputs)
        self._layouts = {value.name: Layout.parse(value.whole or "") for value in self._inputs}
        self._names = {v.index: v.label for v in self._inputs if v.role == "param"}
        self._steps = 0
        self._writer: _checkpoints.Saver | None = None
        # Parameters, buffers and optimizer state by the name of their input.
        self._state: dict[str, Tensor] = {}
        whole = _whole_tensors(weights)
        trained = {output.index for output in self._outputs if output.role == "grad"}
        for value in self._inputs:
            if value.role in ("param", "buffer", "opt"):
                self._state[value.name] = self._part_of(value, whole, weights is not None)
            if value.role == "param":
                parameter = nn.Parameter(self._state[value.name], value.index in trained)
                self._state[value.name] = parameter

    def _part_of(self, value: Value, whole: Mapping[str, Tensor], given: bool) -> Tensor:
        layout = self._layouts[value.name]
        if value.role == "opt" or not given:
            sizes = layout.local_sizes(self._place)
            return torch.zeros(sizes, dtype=layout.dtype, device=self._device)
        tensor = whole.get(value.label, self._program.constants.get(value.label))
        if tensor is None:
            raise fail("weights", f"the weights have no `{value.label}`")
        if tensor.device.type == "meta":
            raise fail(
                "weights",
                f"`{value.label}` is on meta and has no values",
                "leave out `weights` and load a checkpoint, or give the module with values",
            )
        _check(f"weights: `{value.label}`", tensor, layout.dtype, layout.sizes)
        part = layout.part(tensor.detach(), self._place)
        # A rank's state is its own: steps and optimizers write to it.
        if part.data_ptr() == tensor.data_ptr():
            part = part.clone(memory_format=torch.contiguous_format)
        return part.to(self._device)

    # --- Steps

    def inputs(self, batch: Any, *, whole: bool = False, **hyper: float) -> list[Tensor]:
        """This rank's inputs, in the order of the graph: what `to_fx`'s module takes.

        `batch` has this rank's rows, or with `whole` those of all ranks, which are cut here.
        `hyper`: values that change per step, as `lr`; the default is the captured optimizer's.
        """
        try:
            leaves = {leaf.label: leaf.tensor for leaf in flatten_batch(batch).leaves}
        except CaptureError as error:
            (mistake,) = error.diagnostics
            raise fail("batch", mistake.message, mistake.hint) from None
        found = []
        for value in self._inputs:
            if value.name in self._state:
                found.append(self._state[value.name].detach())
            elif value.role == "batch":
                found.append(self._rows(value, leaves, whole))
            else:
                found.append(self._hyper(value, hyper))
        return found

    def _rows(self, value: Value, leaves: Mapping[str, Tensor], whole: bool) -> Tensor:
        layout, tensor = self._layouts[value.name], leaves.get(value.label)
        if tensor is None:
            has = ", ".join(f"`{label}`" for label in leaves)
            raise fail("batch", f"the batch has no `{value.label}`; it has {has}")
        if whole:
            _check(f"batch: `{value.label}`", tensor, layout.dtype, layout.sizes)
            return layout.part(tensor, self._place).to(self._device)
        sizes = layout.local_sizes(self._place)
        hint = "give this rank's rows, or `whole=True` to cut them here"
        _check(f"batch: `{value.label}`", tensor, layout.dtype, sizes, hint)
        return tensor.to(self._device)

    def _hyper(self, value: Value, given: Mapping[str, float]) -> Tensor:
        layout = self._layouts[value.name]
        if value.label in given:
            number = given[value.label]
        elif value.label == "step":
            number = self._steps + 1
        elif value.label in self._program.hyper:
            number = self._program.hyper[value.label]
        else:
            raise fail("hyper", f"the step reads `{value.label}`, which is not given")
        # The fused kernel reads an f64 on the host, and f32 values on the device.
        device = "cpu" if layout.dtype == torch.float64 else self._device
        return torch.tensor(number, dtype=layout.dtype, device=device).reshape(layout.sizes)

    @torch.no_grad()
    def __call__(self, batch: Any, *, whole: bool = False, **hyper: float) -> Tensor:
        """One step: forward, backward and, if it is in the graph, the optimizer. Gives the loss.

        Gradients are added to `.grad`; the loss is that of the whole batch, on every rank.
        """
        inputs = self.inputs(batch, whole=whole, **hyper)
        values = self._module(*inputs)
        users = Counter(_storage(tensor) for tensor in (*inputs, *values))
        own_step = any(v.role == "hyper" for v in self._inputs)
        parameters = {v.index: self._state[v.name] for v in self._inputs if v.role == "param"}
        loss = None
        self.metrics: dict[str, Tensor] = {}
        for output, value in zip(self._outputs, values, strict=True):
            if output.role == "loss":
                loss = value
            elif output.role == "grad" and not own_step:
                parameter = parameters[output.index]
                if parameter.grad is None:
                    parameter.grad = value if _owns(value, users) else value.clone()
                else:
                    parameter.grad.add_(value)
            elif output.role == "metric":
                self.metrics[output.label] = value
            elif output.role == "update" and output.target is not None:
                state = self._state[output.target.name]
                # Heddle's own runtime updates in place.
                if _storage(state) != _storage(value):
                    state.copy_(value)
        self._steps += 1
        if loss is None:
            raise fail("loss", "the graph has no loss")
        return loss

    @property
    def steps(self) -> int:
        """The number of calls so far, those of the run that was loaded included."""
        return self._steps

    # --- State

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """This rank's part of each parameter, in registration order."""
        found = [value for value in self._inputs if value.role == "param"]
        for value in sorted(found, key=lambda v: v.index or 0):
            parameter = self._state[value.name]
            assert isinstance(parameter, nn.Parameter)
            yield value.label, parameter

    def parameters(self) -> Iterator[nn.Parameter]:
        """This rank's part of each trained parameter: what an optimizer takes."""
        return (parameter for _, parameter in self.named_parameters() if parameter.requires_grad)

    @torch.no_grad()
    def clip_grad_norm_(self, max_norm: float) -> Tensor:
        """Scales gradients so that their norm over all ranks is `max_norm` at most; gives it."""
        squares: dict[tuple[str, ...], Tensor] = {}
        grads = []
        for value in self._inputs:
            tensor = self._state.get(value.name)
            if value.role != "param" or tensor is None or tensor.grad is None:
                continue
            split = self._in_mesh_order(self._layouts[value.name].split)
            norm = torch.linalg.vector_norm(tensor.grad.float())
            squares[split] = squares.get(split, torch.zeros((), device=self._device)) + norm * norm
            grads.append(tensor.grad)
        total = torch.zeros((), device=self._device)
        for split, square in sorted(squares.items(), key=lambda item: item[0]):
            if split and self._groups is not None:
                dist.all_reduce(square, group=self._groups.find(split, 0))
            total += square
        norm = total.sqrt()
        factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
        for grad in grads:
            grad.mul_(factor.to(grad.dtype))
        return norm

    def _in_mesh_order(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(axis for axis in self._place.sizes if axis in axes)

    def whole(self, name: str) -> Tensor:
        """A whole tensor of the state, as `up.weight.exp_avg`. All ranks call this."""
        for value in self._inputs:
            if value.name in self._state and _state_name(value, self._names) == name:
                return self._gather(self._state[value.name].detach(), self._layouts[value.name])
        raise fail("name", f"the program has no parameter or buffer `{name}`")

    def _gather(self, part: Tensor, layout: Layout) -> Tensor:
        split = self._in_mesh_order(layout.split)
        if not split or self._groups is None:
            return part.clone()
        group = self._groups.find(split, 0)
        members = [
            Place(self._place.sizes, {**self._place.coordinates, **at})
            for at in Place.all({axis: self._place.sizes[axis] for axis in split})
        ]
        count = max(_count(layout.local_sizes(member)) for member in members)
        payload = torch.zeros(count, dtype=part.dtype, device=part.device)
        payload[: part.numel()].copy_(part.reshape(-1))
        received = [torch.empty_like(payload) for _ in members]
        dist.all_gather(received, payload, group=group)
        whole = torch.empty(layout.sizes, dtype=part.dtype, device=part.device)
        for member, flat in zip(members, received, strict=True):
            sizes = layout.local_sizes(member)
            layout.view(whole, member).copy_(flat[: _count(sizes)].view(sizes))
        return whole

    def hashes(self) -> dict[str, str]:
        """SHA-256 of each whole tensor of the state, by name. All ranks call this."""
        found = {}
        for value in self._inputs:
            if value.name in self._state:
                name = _state_name(value, self._names)
                data = self.whole(name).contiguous().cpu().reshape(-1).view(torch.uint8)
                found[name] = hashlib.sha256(bytes(data.tolist())).hexdigest()
        return found

    def state_dict(self) -> dict[str, Tensor]:
        """The state for `torch.distributed.checkpoint`: DTensors, or tensors without a mesh."""
        from torch.distributed.tensor import DTensor

        found: dict[str, Tensor] = {}
        for value in self._inputs:
            if value.name not in self._state:
                continue
            name, layout = _state_name(value, self._names), self._layouts[value.name]
            part = self._state[value.name].detach()
            if self._mesh is None:
                found[name] = part
                continue
            placements = _placements(name, layout, self._place)
            shape = torch.Size(layout.sizes)
            found[name] = DTensor.from_local(
                part, self._mesh, placements, run_check=False, shape=shape, stride=_strides(shape)
            )
        return found

    # --- Checkpoints

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        optimizer: torch.optim.Optimizer | None = None,
        keep: int = 2,
    ) -> None:
        """Saves the state as a checkpoint of Heddle (docs/checkpoints.md). All ranks call this.

        `optimizer`: its state is saved, too. The newest `keep` checkpoints stay. Returns when the
        checkpoint is whole.
        """
        if self._writer is None or self._writer.folder != os.fspath(folder):
            self._writer = _checkpoints.Saver(os.fspath(folder), self._mesh, keep, self._steps)
        tensors, state = self._tensors(optimizer)
        self._writer.save(self._steps, {"step": self._steps, **state}, tensors, self._place)

    def load(
        self,
        folder: str | os.PathLike[str],
        *,
        optimizer: torch.optim.Optimizer | None = None,
        step: int | None = None,
    ) -> int:
        """Loads the newest whole checkpoint, or that of `step`, and gives its number.

        The checkpoint may be of a run on another mesh. All ranks call this.
        """
        checkpoint = _checkpoints.open_same(os.fspath(folder), step, self._mesh)
        if optimizer is not None:
            _checkpoints.prepare(optimizer, checkpoint.state, self._parameter_names())
        tensors, _ = self._tensors(optimizer)
        _checkpoints.read(checkpoint, tensors, self._place)
        self._steps = int(checkpoint.state["step"])
        return self._steps

    def _parameter_names(self) -> dict[int, str]:
        return {id(parameter): name for name, parameter in self.named_parameters()}

    def _tensors(
        self, optimizer: torch.optim.Optimizer | None
    ) -> tuple[dict[str, tuple[Tensor, Layout]], dict[str, Any]]:
        """The tensors of a checkpoint with their layouts, and the rest of its state."""
        tensors = {
            _state_name(value, self._names): (self._state[value.name], self._layouts[value.name])
            for value in self._inputs
            if value.name in self._state
        }
        if optimizer is None:
            return tensors, {}
        layouts = {
            value.label: self._layouts[value.name]
            for value in self._inputs
            if value.role == "param"
        }
        extra, state = _checkpoints.of_optimizer(optimizer, self._parameter_names(), layouts)
        return {**tensors, **extra}, {"optimizer": state}

    def __repr__(self) -> str:
        at = ", ".join(f"{axis}={number}" for axis, number in self._place.coordinates.items())
        return f"<heddle.Run of @{self._program.graph.name}: rank [{at}], {self._steps} steps>"


def _placements(name: str, layout: Layout, place: Place) -> list[Any]:
    """The placements of a DTensor. FSDP2 cuts parts of tensor parallelism again: so does a plan."""
    from torch.distributed.tensor import Replicate, Shard

    from ._torch_names import strided_shard

    axes_of = list(place.sizes)
    found: list[Any] = []
    for number, axis in enumerate(axes_of):
        dim = next((d for d, axes in enumerate(layout.axes) if axis in axes), None)
        if dim is None:
            found.append(Replicate())
            continue
        order = layout.axes[dim]
        # Later axes of the mesh that cut the dimension before this one does.
        outer = [one for one in order[: order.index(axis)] if axes_of.index(one) > number]
        factor = 1
        for one in outer:
            factor *= place.sizes[one]
        parts = torch.Size([place.sizes[one] for one in order]).numel()
        if factor > 1 and layout.sizes[dim] % parts != 0:
            raise fail(
                "dtensor",
                f"`{name}` has uneven parts over {', '.join(order)}, which no DTensor has",
                f"use `run.whole({name!r})`, or `run.save`",
            )
        found.append(strided_shard(dim, split_factor=factor) if factor > 1 else Shard(dim))
    return found


def _count(sizes: tuple[int, ...]) -> int:
    return torch.Size(sizes).numel()


def _strides(sizes: torch.Size) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(sizes[1:]):
        strides.append(strides[-1] * max(size, 1))
    return tuple(reversed(strides)) if sizes else ()


def _whole_tensors(weights: Any) -> Mapping[str, Tensor]:
    if weights is None:
        return {}
    if isinstance(weights, nn.Module):
        return {
            **dict(weights.named_parameters(remove_duplicate=False)),
            **dict(weights.named_buffers(remove_duplicate=False)),
        }
    if isinstance(weights, Mapping):
        return weights
    kind = type(weights).__name__
    raise fail("weights", f"the weights are a {kind}, expected a module or tensors by name")


def _check(
    what: str, tensor: Tensor, dtype: torch.dtype, sizes: tuple[int, ...], hint: str = ""
) -> None:
    if tensor.dtype == dtype and tuple(tensor.shape) == tuple(sizes):
        return
    has = f"{DTYPE_NAMES.get(tensor.dtype, tensor.dtype)}{list(tensor.shape)}"
    raise fail("shape", f"{what} is {has}, expected {DTYPE_NAMES[dtype]}{list(sizes)}", hint)
