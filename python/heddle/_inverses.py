"""Inverse permutations as sorts, which a rank can compute for its own rows."""

from __future__ import annotations

from operator import getitem
from typing import Any

import torch
from torch import fx

__all__ = ["sort_inverses"]

aten: Any = torch.ops.aten
_SORTS = (aten.sort.default, aten.sort.stable)
_EMPTY = (aten.empty_like.default, aten.new_empty.default)


def sort_inverses(graph_module: fx.GraphModule) -> None:
    """Replaces `inverse[order] = arange(n)` by the indices of a sort of `order`: the same numbers.

    `arange(n)` numbers the rows of all ranks. A sort numbers the rows that it is given, so it is
    also the inverse on a rank that has sorted its own rows.

    >>> import torch
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> from heddle._inverses import sort_inverses
    >>> def inverse(x):
    ...     order = torch.sort(x)[1]
    ...     values = (order,), torch.arange(4)
    ...     return torch.ops.aten.index_put.default(torch.empty_like(order), *values)
    >>> gm = make_fx(inverse, tracing_mode="fake")(torch.zeros(4))
    >>> sort_inverses(gm)
    >>> gm(torch.tensor([3.0, 1.0, 2.0, 0.0])).tolist()
    [3, 1, 2, 0]
    >>> [node.name for node in gm.graph.nodes if "index_put" in node.name]
    []
    """
    graph = graph_module.graph
    for node in list(graph.nodes):
        if node.target is not aten.index_put.default or not _inverts(node):
            continue
        (order,) = node.args[1]
        with graph.inserting_before(node):
            pair = graph.call_function(aten.sort.stable, (order,), {"stable": True})
            pair.meta.update({**node.meta, "val": (order.meta["val"], node.meta["val"])})
            inverse = graph.call_function(getitem, (pair, 1))
            inverse.meta.update(node.meta)
        node.replace_all_uses_with(inverse)
        graph.erase_node(node)
    graph_module.recompile()


def _inverts(node: fx.Node) -> bool:
    """Whether a node writes 0, 1, ... to a permutation's positions of a new vector."""
    base, indices, values, *accumulate = node.args
    if not isinstance(base, fx.Node) or base.target not in _EMPTY or any(accumulate):
        return False
    if not isinstance(values, fx.Node) or values.target is not aten.arange.default:
        return False
    order = indices[0] if len(indices) == 1 else None
    if not isinstance(order, fx.Node) or order.target is not getitem or order.args[1] != 1:
        return False
    size = order.meta["val"].shape
    return order.args[0].target in _SORTS and (values.args[0],) == size == base.meta["val"].shape
