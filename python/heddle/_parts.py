"""Parts of tensors: which part of a whole tensor a rank has, by the types of Heddle's text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from .errors import Diagnostic, RunError

__all__ = ["DTYPES", "Layout", "Place", "fail", "same_bits"]

DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f8e4m3": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2,
    "c64": torch.complex64,
    "c128": torch.complex128,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u64": torch.uint64,
    "u8": torch.uint8,
    "bool": torch.bool,
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_TYPE = re.compile(r"(?:host )?(\w+)\[(.*?)\](?:\{([^}]*)\})?$")
_SIZE = re.compile(r"(\w+)(?:<=\d+)?(?:\{([^}]*)\})?")


def fail(kind: str, message: str, hint: str = "") -> RunError:
    return RunError("", [Diagnostic(f"run-{kind}", message, hint=hint)])


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether element types, sizes and all bits are equal."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    a, b = a.detach().contiguous(), b.detach().contiguous()
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


@dataclass(frozen=True)
class Place:
    """A rank of a mesh: the sizes of its axes, the slowest first, and the rank's coordinates.

    >>> from heddle._parts import Place
    >>> place = Place.of({"dp": 2, "tp": 2}, 3)
    >>> place.coordinates, place.part(5, ["dp"]), place.part(5, ["dp", "tp"])
    ({'dp': 1, 'tp': 1}, (3, 2), (4, 1))
    """

    sizes: Mapping[str, int]
    coordinates: Mapping[str, int]

    @staticmethod
    def of(sizes: Mapping[str, int], rank: int) -> Place:
        coordinates = {}
        for axis, size in reversed(list(sizes.items())):
            coordinates[axis] = rank % size
            rank //= size
        return Place(sizes, {axis: coordinates[axis] for axis in sizes})

    @staticmethod
    def all(sizes: Mapping[str, int]) -> list[dict[str, int]]:
        """The coordinates of all ranks of a mesh, in their order."""
        ranges = product(*(range(size) for size in sizes.values()))
        return [dict(zip(sizes, numbers, strict=True)) for numbers in ranges]

    def part(self, whole: int, axes: Sequence[str]) -> tuple[int, int]:
        """Begin and size of the rank's part: chunks of ceil(size / ranks), axis after axis."""
        begin, size = 0, whole
        for axis in axes:
            chunk = -(-size // self.sizes[axis])
            start = min(self.coordinates[axis] * chunk, size)
            begin, size = begin + start, min(chunk, size - start)
        return begin, size

    def size(self, text: int | str) -> int:
        """A size of a local type: a number, or a part as `5{dp}`."""
        if isinstance(text, int):
            return text
        found = _SIZE.fullmatch(text)
        if found is None or not found[1].isdigit():
            raise fail("size", f"size {text} is data, which an FX graph cannot have")
        return self.part(int(found[1]), found[2].split(",") if found[2] else ())[1]


@dataclass(frozen=True)
class Layout:
    """How a tensor is spread: its element type, whole sizes, axes of each dimension, pending sums.

    >>> from heddle._parts import Layout, Place
    >>> layout = Layout.parse("f32[5{dp},8]")
    >>> layout.sizes, layout.axes
    ((5, 8), (('dp',), ()))
    >>> import torch
    >>> layout.part(torch.zeros(5, 8), Place.of({"dp": 2}, 1)).shape
    torch.Size([2, 8])
    """

    dtype: torch.dtype
    sizes: tuple[int, ...]
    axes: tuple[tuple[str, ...], ...]
    partial: tuple[str, ...] = ()

    @staticmethod
    def parse(text: str) -> Layout:
        found = _TYPE.fullmatch(text)
        if found is None:
            raise fail("type", f"{text} is not the type of a tensor")
        sizes, axes = [], []
        for size, over in _SIZE.findall(found[2]):
            if not size.isdigit():
                raise fail("size", f"size {size} of {text} is data, which cannot be cut into parts")
            sizes.append(int(size))
            axes.append(tuple(over.split(",")) if over else ())
        return Layout(DTYPES[found[1]], tuple(sizes), tuple(axes), _partial(found[3]))

    def part(self, whole: Tensor, place: Place) -> Tensor:
        """A rank's part of a whole tensor: a copy if the tensor is cut."""
        part = self.view(whole, place)
        if part.shape == whole.shape:
            return part
        return part.clone(memory_format=torch.contiguous_format)

    def view(self, whole: Tensor, place: Place) -> Tensor:
        """A rank's part as a view of the whole tensor."""
        for dim, axes in enumerate(self.axes):
            begin, size = place.part(self.sizes[dim], axes)
            whole = whole.narrow(dim, begin, size)
        return whole

    def local_sizes(self, place: Place) -> tuple[int, ...]:
        """The sizes of a rank's part."""
        return tuple(
            place.part(size, axes)[1] for size, axes in zip(self.sizes, self.axes, strict=True)
        )

    @property
    def split(self) -> tuple[str, ...]:
        """The axes that split some dimension."""
        return tuple(axis for axes in self.axes for axis in axes)


def _partial(text: str | None) -> tuple[str, ...]:
    if not text:
        return ()
    return tuple(part.strip() for part in text.split(","))
