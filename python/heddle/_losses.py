"""Mean losses as sums over weights, which ranks with parts of the rows can add up."""

from __future__ import annotations

from operator import getitem
from typing import Any

import torch
from torch import fx

__all__ = ["sum_means"]

aten: Any = torch.ops.aten
_MEAN, _SUM = 1, 2


def sum_means(graph_module: fx.GraphModule) -> None:
    """Replaces the mean of `nll_loss` by its sum over the total weight: the same bits.

    A mean divides by the number of all rows, so a rank would need the logits of all of them.

    >>> import torch
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> from heddle._losses import sum_means
    >>> def loss(x, y):
    ...     return torch.nn.functional.nll_loss(x, y)
    >>> gm = make_fx(loss, tracing_mode="fake")(torch.randn(4, 3), torch.tensor([0, 1, 2, 0]))
    >>> sum_means(gm)
    >>> [node.name for node in gm.graph.nodes if node.op == "call_function"]
    ['nll_loss_forward', 'loss_sum', 'loss_weight', 'loss_mean']
    """
    graph = graph_module.graph
    for node in list(graph.nodes):
        if node.target is aten.nll_loss_forward.default and node.args[3] == _MEAN:
            _sum_forward(graph, node)
        elif node.target is aten.nll_loss_backward.default and node.args[4] == _MEAN:
            _sum_backward(graph, node)


def _sum_forward(graph: fx.Graph, node: fx.Node) -> None:
    node.update_arg(3, _SUM)
    mean, weight = node.meta["val"]
    items = [user for user in node.users if user.target is getitem]
    with graph.inserting_after(node):
        loss = _call(graph, node, "loss_sum", getitem, (node, 0), mean)
    with graph.inserting_after(loss):
        total = _call(graph, node, "loss_weight", getitem, (node, 1), weight)
    with graph.inserting_after(total):
        quotient = _call(graph, node, "loss_mean", aten.div.Tensor, (loss, total), mean)
    for item in items:
        item.replace_all_uses_with(total if item.args[1] else quotient)
        graph.erase_node(item)


def _sum_backward(graph: fx.Graph, node: fx.Node) -> None:
    grad, total = node.args[0], node.args[6]
    assert isinstance(grad, fx.Node)
    with graph.inserting_before(node):
        val = grad.meta["val"]
        quotient = _call(graph, node, "loss_mean_backward", aten.div.Tensor, (grad, total), val)
    node.update_arg(0, quotient)
    node.update_arg(4, _SUM)


def _call(
    graph: fx.Graph, like: fx.Node, name: str, target: Any, args: tuple[Any, ...], val: Any
) -> fx.Node:
    """A call with the scope and the phase of another."""
    node = graph.create_node("call_function", target, args, name=name)
    node.meta.update({**like.meta, "val": val})
    return node
