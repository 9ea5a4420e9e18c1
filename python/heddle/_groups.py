"""Process groups for the communicators of a program, on a `DeviceMesh`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from ._parts import Place, fail

__all__ = ["Groups", "place_on"]


def place_on(mesh: Any, sizes: Mapping[str, int]) -> Place:
    """This process on a mesh, which must have the axes of the program."""
    if not isinstance(mesh, DeviceMesh):
        raise fail("mesh", f"the mesh is a {type(mesh).__name__}, expected a DeviceMesh")
    names = mesh.mesh_dim_names or ()
    has = dict(zip(names, mesh.mesh.shape, strict=False))
    if list(has.items()) != list(sizes.items()):
        shown = ", ".join(f"{axis}={size}" for axis, size in has.items()) or tuple(mesh.mesh.shape)
        wanted = ", ".join(f"{axis}={size}" for axis, size in sizes.items())
        raise fail(
            "mesh",
            f"the mesh is [{shown}], the program is for [{wanted}]",
            f'init_device_mesh("{mesh.device_type}", {tuple(sizes.values())}, '
            f"mesh_dim_names={tuple(sizes)})",
        )
    if mesh.get_coordinate() is None:
        raise fail("mesh", f"rank {dist.get_rank()} is not on the mesh")
    return Place(dict(sizes), {axis: mesh.get_local_rank(axis) for axis in names})


class Groups:
    """The groups of one mesh. All ranks ask for them in the same order.

    A communicator is a set of axes and a stream. Stream 0 of one axis is the mesh's own group;
    others are made, once for each mesh.
    """

    def __init__(self, mesh: DeviceMesh, place: Place) -> None:
        self._mesh = mesh
        self._place = place
        cached = mesh.__dict__.setdefault("_heddle_groups", {})
        self._made: dict[tuple[tuple[str, ...], int], Any] = cached

    def find(self, over: Sequence[str], stream: int) -> Any:
        """The group of this rank."""
        axes = tuple(over)
        if stream == 0 and len(axes) == 1:
            return self._mesh.get_group(axes[0])
        if (axes, stream) not in self._made:
            self._made[axes, stream] = self._make(axes, stream)
        return self._made[axes, stream]

    def _make(self, over: tuple[str, ...], stream: int) -> Any:
        sizes = self._place.sizes
        ranks = self._mesh.mesh.flatten().tolist()
        others = [axis for axis in sizes if axis not in over]
        own = None
        for fixed in Place.all({axis: sizes[axis] for axis in others}):
            members = [
                ranks[self._number({**fixed, **inner})]
                for inner in Place.all({axis: sizes[axis] for axis in over})
            ]
            if members != sorted(members):
                raise fail(
                    "group",
                    f"a collective over [{', '.join(over)}] orders ranks as {members}; groups of "
                    "torch.distributed are in rising order",
                    "order the axes of the mesh as the plan does",
                )
            group = dist.new_group(members, group_desc=f"heddle {','.join(over)} stream {stream}")
            if all(self._place.coordinates[axis] == at for axis, at in fixed.items()):
                own = group
        return own

    def _number(self, coordinates: Mapping[str, int]) -> int:
        number = 0
        for axis, size in self._place.sizes.items():
            number = number * size + coordinates[axis]
        return number
