"""Passes of Heddle for FX graphs of other programs: GraphTrainer's pipeline, and torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import getitem
from types import SimpleNamespace
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule, Node

from . import _core
from ._core import Graph
from .errors import CaptureError, Diagnostic, PassError

__all__ = ["as_pass", "read_local", "reorder"]


def _is_gathered(node: Node) -> bool:
    """Whether an input is only gathered, after casts and views: then it is a part of a weight."""
    while len(node.users) == 1:
        node = next(iter(node.users))
        if "all_gather_into_tensor" in str(node.target):
            return True
        if node.op != "call_function" or len(node.all_input_nodes) != 1:
            return False
    return False


def _roles(graph: FxGraph) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    inputs: list[dict[str, Any]] = []
    weights = 0
    for node in graph.nodes:
        if node.op != "placeholder":
            continue
        if _is_gathered(node):
            inputs.append({"role": "param", "index": weights, "label": node.name})
            weights += 1
        else:
            inputs.append({"role": "batch", "label": node.name})
    return inputs, [{"role": "metric", "label": node.name} for node in _results(graph)]


def _results(graph: FxGraph) -> list[Node]:
    """The tensors among the outputs, each once."""
    output = next(node for node in reversed(graph.nodes) if node.op == "output")
    values = output.args[0] if isinstance(output.args[0], (tuple, list)) else [output.args[0]]
    return list(dict.fromkeys(value for value in values if isinstance(value, Node)))


def _axes_of(mesh: DeviceMesh | None) -> tuple[str, dict[str, str]]:
    """A mesh as Heddle writes it, and the axes of each of its process groups."""
    if mesh is None:
        return "", {}
    names = mesh.mesh_dim_names
    if names is None:
        message = "the DeviceMesh has no names; give mesh_dim_names"
        raise PassError("", [Diagnostic("fx-mesh", message)])
    sizes = ",".join(f"{name}={mesh.size(at)}" for at, name in enumerate(names))
    groups = {str(mesh.get_group(at).group_name): name for at, name in enumerate(names)}
    if dist.group.WORLD is not None and mesh.size() == dist.get_world_size():
        groups.setdefault(dist.group.WORLD.group_name, ",".join(names))
    return sizes, groups


def read_local(gm: GraphModule, mesh: DeviceMesh | None = None) -> Graph:
    """A local graph of Heddle for an FX graph: the names of values are those of nodes.

    Inputs that are no tensors are refused. Without `mesh`, each process group is an axis. An input
    that is only gathered is a parameter.

    >>> import torch
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> from heddle.fx import read_local
    >>> gm = make_fx(lambda x: [x.relu()], tracing_mode="fake")(torch.ones(2))
    >>> read_local(gm).nodes[0].op
    'aten.relu'
    """
    for node in gm.graph.nodes:
        if node.op == "placeholder" and not isinstance(node.meta.get("val"), Tensor):
            raise _mistake(f"placeholder `{node.name}` is not a tensor")
    inputs, outputs = _roles(gm.graph)
    # Gradients that no input needs are None among the outputs of a backward graph.
    nodes = [node for node in gm.graph.nodes if node.op != "output"]
    output = SimpleNamespace(op="output", name="output", args=(_results(gm.graph),), meta={})
    module = SimpleNamespace(graph=SimpleNamespace(nodes=[*nodes, output]))
    sizes, groups = _axes_of(mesh)
    graph = _core.read_fx(module, inputs, outputs, None, mesh=sizes, groups=groups)
    if graph.view == "local":
        return graph
    # Without collectives, too, it is what one rank runs.
    return Graph.parse(str(graph).replace("heddle 1 global", "heddle 1 local", 1))


def _mistake(message: str) -> CaptureError:
    return CaptureError("", [Diagnostic("fx-graph", message)])


def reorder(gm: GraphModule, after: Graph) -> GraphModule:
    """The module with its nodes in the order of a graph that `read_local` gave and passes moved.

    >>> import torch
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> from heddle.fx import read_local, reorder
    >>> gm = make_fx(lambda x: [x.relu(), x.neg()], tracing_mode="fake")(torch.ones(2))
    >>> [node.name for node in reorder(gm, read_local(gm)).graph.nodes]
    ['x_1', 'relu', 'neg', 'output']
    """
    position = {value.name: node.index for node in after.nodes for value in node.results}
    graph = FxGraph()
    new: dict[Node, Node] = {}
    calls = [node for node in gm.graph.nodes if node.op == "call_function"]
    order: dict[Node, tuple[int, int]] = {}
    for number, node in enumerate(calls):
        names = [node.name, *(user.name for user in node.users if user.target is getitem)]
        found = [position[name] for name in names if name in position]
        if not found and node.users:
            message = f"the passes removed node `{node.name}`; only moves fit"
            raise PassError("", [Diagnostic("fx-order", message)])
        order[node] = (min(found, default=len(position)), number)
    # Items follow their call.
    calls.sort(key=order.__getitem__)
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            new[node] = graph.node_copy(node)
    for node in calls:
        new[node] = graph.node_copy(node, new.__getitem__)
    for node in gm.graph.nodes:
        if node.op == "output":
            graph.node_copy(node, new.__getitem__)
    graph.lint()
    return GraphModule(gm, graph)


def as_pass(
    pipeline: str, *, mesh: DeviceMesh | None = None, cluster: str = "h100-8x"
) -> Callable[[GraphModule, Sequence[Any]], GraphModule]:
    """A pass for pipelines of FX passes, as torchtitan's GraphTrainer has them.

    It reads the module, runs passes that move nodes, and gives the module in the new order. A pass
    that changes more than the order is an error. `cluster` prices nodes. `mesh` names the axes of
    process groups, and tells which ranks share a host: the last axis is the fastest.

    >>> import torch
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> from heddle.fx import as_pass
    >>> gm = make_fx(lambda x: [x.relu(), x.neg()], tracing_mode="fake")(torch.ones(2))
    >>> len(as_pass("reorder-for-memory")(gm, [torch.ones(2)]).graph.nodes)
    4
    """

    def run(gm: GraphModule, example_inputs: Sequence[Any] = ()) -> GraphModule:
        before = read_local(gm, mesh)
        after = _core.run_pipeline(before, pipeline, cluster=cluster)
        lost = {v.name for n in before.nodes for v in n.results} ^ {
            v.name for n in after.nodes for v in n.results
        }
        if lost:
            names = ", ".join(f"`{name}`" for name in sorted(lost)[:3])
            message = f"pipeline `{pipeline}` adds or removes {names}; only moves fit an FX graph"
            raise PassError("", [Diagnostic("fx-order", message)])
        return reorder(gm, after)

    run.__name__ = f"heddle_{pipeline.partition('{')[0].replace('-', '_')}"
    return run
