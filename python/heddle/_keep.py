"""What torch.compile keeps for backward, decided by Heddle's pass `checkpoint`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import getitem
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from . import _core
from ._core import Graph
from ._torch_names import default_partition
from .errors import CaptureError, Diagnostic, Error

__all__ = ["Kept", "mark", "partition_by", "read_joint"]

_RECOMPUTED = {"must_recompute", "prefer_recompute"}
# torch keeps the values that a region of recomputed nodes reads, and those between two regions.
_REGION = 1
_MODULE = re.compile(r"^L\['self'\]\.?")
_PART = re.compile(r"\._modules\['([^']+)'\]|\[(?:'([^']+)'|(\d+))\]")


class Kept:
    """What was decided for one joint graph.

    >>> from heddle._keep import Kept
    >>> Kept(12, 30)
    12 values kept, 30 recomputed
    """

    def __init__(self, kept: int = 0, recomputed: int = 0, reason: str = "") -> None:
        self.kept = kept
        self.recomputed = recomputed
        # Why torch decides instead.
        self.reason = reason

    def __repr__(self) -> str:
        if self.reason:
            return f"torch's choice: {self.reason}"
        return f"{self.kept} values kept, {self.recomputed} recomputed"


def _scope(node: Node) -> str:
    """The path of the module, from what Dynamo notes: `L['self'].layers.0`."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    if not stack:
        return ""
    path = _MODULE.sub("", list(stack.values())[-1][0])
    return _PART.sub(lambda m: "." + next(filter(None, m.groups())), path).strip(".")


def read_joint(joint: GraphModule, num_fwd_outputs: int) -> Graph:
    """A joint graph of AOTAutograd as a graph of Heddle, with gradients as outputs.

    A primal with a gradient is a parameter. Inputs that are no tensors are refused.
    """
    placeholders = [node for node in joint.graph.nodes if node.op == "placeholder"]
    output = next(node for node in reversed(joint.graph.nodes) if node.op == "output")
    results = list(output.args[0])
    gradients = results[num_fwd_outputs:]
    inputs: list[dict[str, Any]] = []
    for number, node in enumerate(placeholders):
        if not isinstance(node.meta.get("val"), Tensor):
            message = f"placeholder `{node.name}` is not a tensor"
            raise CaptureError("", [Diagnostic("fx-graph", message)])
        trained = number < len(gradients) and isinstance(gradients[number], Node)
        role = {"role": "param", "index": number} if trained else {"role": "batch"}
        inputs.append({**role, "label": node.name})
    taken: dict[Node, dict[str, Any]] = {}
    for number, result in enumerate(results):
        if not isinstance(result, Node) or result in taken or result.op == "placeholder":
            continue
        if number < num_fwd_outputs:
            taken[result] = {"role": "metric", "label": result.name}
        else:
            taken[result] = {"role": "grad", "index": number - num_fwd_outputs}
    for node in joint.graph.nodes:
        if node.op == "call_function":
            backward = node.meta.get("partitioner_tag") == "is_backward"
            node.meta["heddle_phase"] = "bwd" if backward else "fwd"
            node.meta["heddle_scope"] = _scope(node)
    nodes = [node for node in joint.graph.nodes if node.op != "output"]
    end = SimpleNamespace(op="output", name="output", args=(list(taken),), meta={})
    module = SimpleNamespace(graph=SimpleNamespace(nodes=[*nodes, end]))
    graph = _core.read_fx(module, inputs, list(taken.values()), None)
    if graph.view == "local":
        return graph
    return Graph.parse(str(graph).replace("heddle 1 global", "heddle 1 local", 1))


def mark(joint: GraphModule, num_fwd_outputs: int, policy: str, cluster: str) -> Kept:
    """Marks what is kept and what is recomputed, as `torch.utils.checkpoint` marks it."""
    graph = read_joint(joint, num_fwd_outputs)
    done = _core.run_pipeline(graph, f"checkpoint{{policy={policy}}}", cluster=cluster)
    keeps = {
        value.name: value.keep
        for node in done.nodes
        for value in node.results
        if value.keep is not None
    }
    found = Kept()
    for node in joint.graph.nodes:
        if node.op != "call_function" or node.meta["heddle_phase"] != "fwd":
            continue
        # torch marks the call of several results, Heddle each result.
        names = [node.name, *(user.name for user in node.users if user.target is getitem)]
        marks = {keeps[name] for name in names if name in keeps}
        if not marks:
            continue
        target = node.args[0].target if node.target is getitem else node.target
        if marks <= _RECOMPUTED and not _draws(target):
            node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
            node.meta["ac_graph_id"] = _REGION
            found.recomputed += 1
        else:
            node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
            found.kept += 1
    return found


def _draws(target: Any) -> bool:
    """Whether the op draws random numbers, which a second run would not repeat."""
    tags: Sequence[Any] = getattr(target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags


def partition_by(
    policy: str, cluster: str, report: Callable[[Kept], None]
) -> Callable[..., tuple[GraphModule, GraphModule]]:
    """A function that AOTAutograd calls to divide a joint graph into forward and backward."""

    def partition(
        joint: GraphModule, inputs: Any, *, num_fwd_outputs: int, **options: Any
    ) -> tuple[GraphModule, GraphModule]:
        try:
            report(mark(joint, num_fwd_outputs, policy, cluster))
        except Error as error:
            report(Kept(reason=str(error).splitlines()[0]))
        return default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **options)

    return partition
