"""The tensors that a step takes: parameters, buffers, and the leaves of a batch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from . import hf
from ._torch_names import pytree
from ._trace import Leaf, fail

__all__ = ["Batch", "Spec", "check_devices", "flatten_batch", "state_of"]


@dataclass(frozen=True)
class Spec:
    """Shape and type of a tensor of the batch, in place of the tensor.

    >>> import torch
    >>> from heddle.capturing import Spec
    >>> Spec((64, 8192), torch.int64)
    Spec(shape=(64, 8192), dtype=torch.int64)
    """

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        shape = tuple(self.shape)
        if not all(isinstance(size, int) and size >= 0 for size in shape):
            raise TypeError(f"the shape is {self.shape}, expected sizes that are not negative")
        object.__setattr__(self, "shape", shape)

    def _tensor(self) -> Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device="meta")


def _check_tensor(kind: str, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, (nn.UninitializedParameter, nn.UninitializedBuffer)):
        raise fail(
            "model", f"{kind} `{name}` has no shape yet", "run the model once before you capture it"
        )
    if hasattr(tensor, "device_mesh"):
        raise fail(
            "model",
            f"{kind} `{name}` is a DTensor",
            "capture the whole model; apply `fully_shard` or `parallelize_module` to none of it",
        )
    plain = (Tensor, nn.Parameter, nn.Buffer)
    if type(tensor) not in plain or tensor.layout != torch.strided:
        what = type(tensor).__name__ if type(tensor) not in plain else str(tensor.layout)
        raise fail("model", f"{kind} `{name}` is a {what}, expected a plain tensor")


def check_devices(leaves: Sequence[Leaf]) -> None:
    """Raises for tensors on two devices. Buffers may have values if no parameter has."""
    first: dict[torch.device, Leaf] = {}
    for leaf in leaves:
        first.setdefault(leaf.tensor.device, leaf)
    meta = torch.device("meta")
    if meta in first and all(leaf.role == "buffer" for on, leaf in first.items() if on != meta):
        del first[meta]
    if len(first) > 1:
        (one, a), (other, b) = list(first.items())[:2]
        raise fail(
            "device",
            f"the model is on two devices: `{a.label}` on {one}, `{b.label}` on {other}",
            "capture it on one device, or on `meta`; a plan spreads it",
        )


def _check_memory(leaves: Sequence[Leaf]) -> None:
    """Raises for parameters that are different tensors in the same memory.

    Eager updates such memory once for each of them; as parts of ranks they would be apart.
    """
    ranges = []
    for leaf in leaves:
        tensor = leaf.tensor
        if leaf.role == "param" and tensor.device.type != "meta" and tensor.is_contiguous():
            ranges.append((tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes, leaf.label))
    ranges = sorted(one for one in ranges if one[0] < one[1])
    for (_, end, label), (begin, _, other) in itertools.pairwise(ranges):
        if begin < end:
            raise fail(
                "model",
                f"parameters `{label}` and `{other}` are different tensors in the same memory",
                "tie them: assign the parameter itself, as `head.weight = embed.weight`",
            )


def state_of(model: nn.Module) -> tuple[list[Leaf], dict[int, int]]:
    """Parameters, then buffers, tied ones once; and the position of each tensor by `id`."""
    leaves: list[Leaf] = []
    positions: dict[int, int] = {}
    kinds = (
        ("param", "parameter", model.named_parameters(remove_duplicate=False)),
        ("buffer", "buffer", model.named_buffers(remove_duplicate=False)),
    )
    for role, kind, named in kinds:
        names: dict[int, list[str]] = {}
        tensors: dict[int, Tensor] = {}
        for name, tensor in named:
            _check_tensor(kind, name, tensor)
            names.setdefault(id(tensor), []).append(name)
            tensors[id(tensor)] = tensor
        for key, tensor in tensors.items():
            if key in positions:
                continue
            positions[key] = len(leaves)
            leaves.append(Leaf(role, names[key][0], tensor, tuple(names[key][1:])))
    check_devices(leaves)
    _check_memory(leaves)
    return leaves, positions


def _label(path: Sequence[Any]) -> str:
    parts = [
        str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path
    ]
    return ".".join(parts) or "batch"


@dataclass
class Batch:
    """The tensors of a batch, and how to put others in their places."""

    leaves: list[Leaf]
    rebuild: Callable[[Sequence[Any]], Any]


def flatten_batch(batch: Any) -> Batch:
    """The leaves of any container; a leaf that is no tensor stays as it is."""
    paths, spec = pytree.tree_flatten_with_path(hf.plain_batch(batch))
    values = [value for _, value in paths]
    taken: list[int] = []
    leaves: list[Leaf] = []
    for index, (path, value) in enumerate(paths):
        if isinstance(value, Spec):
            value = value._tensor()
        if isinstance(value, Tensor):
            _check_tensor("batch", _label(path), value)
            taken.append(index)
            leaves.append(Leaf("batch", _label(path), value.detach()))
    if not leaves:
        raise fail(
            "batch",
            f"the batch has no tensor: {type(batch).__name__}",
            "give tensors, or heddle.Spec(shape, dtype), in dictionaries, lists or tuples",
        )
    labels = [leaf.label for leaf in leaves]
    for label in labels:
        if labels.count(label) > 1:
            raise fail(
                "batch",
                f"{labels.count(label)} tensors of the batch have the path `{label}`",
                "rename a key: a path joins keys by dots",
            )

    def rebuild(tensors: Sequence[Any]) -> Any:
        now = list(values)
        for index, tensor in zip(taken, tensors, strict=True):
            now[index] = tensor
        return pytree.tree_unflatten(now, spec)

    return Batch(leaves, rebuild)
