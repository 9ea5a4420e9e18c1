"""Rows that travel to the ranks of their experts and back, in ATen: see `_to_fx`.

Each call of `all_to_all_single` reads the numbers of its rows from the counts, so its node has no
size that a compiler knows. `meta["val"]` has the most rows that may come.
"""

from __future__ import annotations

from operator import getitem
from typing import Any, Protocol

import torch
from torch import fx

from ._core import Node
from ._torch_names import functional

__all__ = ["combine", "dispatch", "wait_for_dispatch"]

aten: Any = torch.ops.aten


class Writer(Protocol):
    """The part of `_to_fx._Writer` that this file uses."""

    def _call(self, target: Any, *args: Any, part: bool = True, **kwargs: Any) -> fx.Node: ...

    def _call_as(self, val: Any, target: Any, *args: Any, part: bool = True) -> fx.Node: ...

    def _operand(self, node: Node, index: int = 0) -> fx.Node: ...

    def _group(self, node: Node) -> Any: ...

    def _note(self, node: Node, *names: str) -> None: ...


def _numbers(writer: Writer, counts: fx.Node, ranks: int) -> list[fx.Node]:
    """The rows of each rank, as numbers."""
    sums = writer._call(aten.sum.dim_IntList, _by_rank(writer, counts, ranks), [1])
    ones = [writer._call(aten.select.int, sums, 0, rank) for rank in range(ranks)]
    return [writer._call_as(0, aten._local_scalar_dense.default, one) for one in ones]


def _by_rank(writer: Writer, counts: fx.Node, ranks: int) -> fx.Node:
    return writer._call(aten.view.default, counts, [ranks, counts.meta["val"].shape[0] // ranks])


def _rows(like: fx.Node, rows: int) -> Any:
    """A fake tensor like another, with another number of rows."""
    val = like.meta["val"]
    return val.new_empty([rows, *val.shape[1:]])


def _order(writer: Writer, received: fx.Node, ranks: int, most: int) -> fx.Node:
    """The positions of rows, which come by rank, in the order of experts, then of ranks."""
    vector = received.meta["val"].new_empty([most])
    blocks = writer._call_as(vector, aten.repeat_interleave.Tensor, received)
    experts = received.meta["val"].shape[0] // ranks
    expert = writer._call(aten.remainder.Scalar, blocks, experts)
    return _argsort(writer, expert)


def _argsort(writer: Writer, numbers: fx.Node) -> fx.Node:
    pair = writer._call(aten.sort.stable, numbers, stable=True)
    return writer._call(getitem, pair, 1)


def dispatch(writer: Writer, node: Node) -> fx.Node:
    """Sends rows to the ranks of their experts. They come in the order of ranks."""
    rows, sent, received = (writer._operand(node, i) for i in range(3))
    group, most = writer._group(node), node.attrs["most"]
    there, here = (_numbers(writer, counts, group.size()) for counts in (sent, received))
    writer._note(node, "most", "size", "why")
    target = functional.all_to_all_single.default
    return writer._call_as(
        _rows(rows, most), target, rows, here, there, group.group_name, part=False
    )


def wait_for_dispatch(writer: Writer, launch: Node, handle: fx.Node) -> fx.Node:
    """The rows that came, in the order of experts, in a buffer if the graph asks for one."""
    received, most = writer._operand(launch, 2), launch.attrs["most"]
    came = writer._call(functional.wait_tensor.default, handle)
    order = _order(writer, received, writer._group(launch).size(), most)
    exact = launch.attrs.get("size") is not None
    sorted_rows = writer._call(aten.index_select.default, came, 0, order, part=not exact)
    if exact:
        return sorted_rows
    # More rows than fit are an error of the slice.
    total = writer._call_as(0, aten.sym_size.int, sorted_rows, 0)
    buffer = writer._call(aten.new_zeros.default, sorted_rows, list(_rows(came, most).shape))
    target = aten.slice_scatter.default
    return writer._call_as(
        _rows(came, most), target, buffer, sorted_rows, 0, 0, total, part=False
    )


def combine(writer: Writer, node: Node) -> fx.Node:
    """Returns rows to the ranks that they came from."""
    rows, sent, received = (writer._operand(node, i) for i in range(3))
    group, most = writer._group(node), rows.meta["val"].shape[0]
    there, here = (_numbers(writer, counts, group.size()) for counts in (received, sent))
    back = _argsort(writer, _order(writer, received, group.size(), most))
    by_rank = writer._call(aten.index_select.default, rows, 0, back)
    writer._note(node, "rows_back", "why")
    val = _rows(rows, node.attrs["rows_back"])
    target = functional.all_to_all_single.default
    return writer._call_as(val, target, by_rank, here, there, group.group_name, part=False)
