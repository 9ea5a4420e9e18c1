"""A traced step without writes in place, with a scope and a phase on every node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from ._torch_names import FakeTensorMode, OpOverload, make_fx, preserve_node_meta
from ._trace import fail

__all__ = ["Functional", "functionalize", "is_same", "mark"]

aten: Any = torch.ops.aten

# These write their statistics, and their schemas do not state it.
_WRITE_STATISTICS = ("aten::native_batch_norm", "aten::cudnn_batch_norm")
# The same values; in a graph without writes they are also the same tensor.
_SAME = (
    aten.detach.default,
    aten.alias.default,
    aten.lift_fresh_copy.default,
    aten.lift_fresh.default,
)


def is_same(node: fx.Node) -> bool:
    """Whether a node's result is its operand."""
    return node.op == "call_function" and node.target in _SAME


def mark(nodes: Iterable[fx.Node]) -> None:
    """Sets `heddle_phase` and `heddle_scope`.

    A backward node has the scope of the forward op whose gradient it computes: they share a
    sequence number. A sum of gradients has the scope of the node before it.
    """
    nodes = [node for node in nodes if node.op == "call_function"]
    scopes: dict[int | None, str] = {}
    phase, scope = "fwd", "loss"
    for node in nodes:
        custom = node.meta.get("custom") or {}
        phase = custom.get("heddle_phase", phase)
        if "heddle_scope" in custom:
            scope = custom["heddle_scope"]
            if phase == "fwd" and "seq_nr" in node.meta:
                scopes.setdefault(node.meta["seq_nr"], scope)
        else:
            scope = scopes.get(custom.get("heddle_of"), scope)
        node.meta["heddle_phase"] = phase
        node.meta["heddle_scope"] = scope


def _writes(node: fx.Node) -> bool:
    target = node.target
    if not isinstance(target, OpOverload):
        return False
    schema = target._schema
    return schema.is_mutable or schema.name in _WRITE_STATISTICS


@dataclass
class Functional:
    """A graph whose nodes write to nothing."""

    graph_module: fx.GraphModule
    # New values of placeholders, by position, that the step writes to.
    written: dict[int, fx.Node] = field(default_factory=dict)
    # Real tensors that the step reads and does not take. They are the last placeholders.
    constants: list[Tensor] = field(default_factory=list)


def _refuse_object(node: fx.Node, value: Any) -> None:
    scope = (node.meta.get("custom") or {}).get("heddle_scope", "")
    if isinstance(value, fx.GraphModule):
        what, hint = "a function that is traced apart", "write it as ops of torch"
    else:
        what, hint = "an object other than a tensor", "draw random numbers without `generator=`"
    raise fail("constant", f"{f'`{scope}`' if scope else 'the model'} reads {what}", hint)


def _drop_profiling(graph_module: fx.GraphModule) -> None:
    """Removes the calls of `torch.profiler.record_function`."""
    for node in reversed(list(graph_module.graph.nodes)):
        if isinstance(node.target, OpOverload) and node.target.namespace == "profiler":
            graph_module.graph.erase_node(node)


def _lift_constants(graph_module: fx.GraphModule) -> list[Tensor]:
    """Makes placeholders of the tensors that the graph holds, last in order."""
    graph = graph_module.graph
    constants: list[Tensor] = []
    known: dict[str, fx.Node] = {}
    last = [node for node in graph.nodes if node.op == "placeholder"][-1]
    for node in list(graph.nodes):
        if node.op != "get_attr" or not isinstance(node.target, str):
            continue
        if node.target not in known:
            value = getattr(graph_module, node.target)
            if not isinstance(value, Tensor):
                _refuse_object(node, value)
            with graph.inserting_after(last):
                last = known[node.target] = graph.placeholder(node.target)
            known[node.target].meta.update(node.meta)
            constants.append(value)
        node.replace_all_uses_with(known[node.target])
        graph.erase_node(node)
    return constants


def _without_writes(graph_module: fx.GraphModule, fakes: Sequence[Tensor]) -> fx.GraphModule:
    def run(*values: Tensor) -> Any:
        return fx.Interpreter(graph_module).run(*values)

    functional: Callable[..., Any] = torch.func.functionalize(run, remove="mutations")
    with preserve_node_meta(), torch.no_grad():
        return make_fx(functional)(*fakes)


def functionalize(graph_module: fx.GraphModule) -> Functional:
    """Removes writes, by a second trace that runs no code of the user, if there are any."""
    _drop_profiling(graph_module)
    constants = _lift_constants(graph_module)
    nodes = graph_module.graph.nodes
    if not any(_writes(node) for node in nodes if node.op == "call_function"):
        return Functional(graph_module, constants=constants)
    # Sequence numbers of the second trace are its own.
    mark(nodes)
    for node in nodes:
        if node.op == "call_function":
            found = {key: node.meta[key] for key in ("heddle_phase", "heddle_scope")}
            node.meta["custom"] = {**(node.meta.get("custom") or {}), **found}
    with FakeTensorMode(allow_non_fake_inputs=True):
        taken = [node.meta.get("val") for node in nodes if node.op == "placeholder"]
        taken[len(taken) - len(constants) :] = constants
        fakes = [
            torch.empty_strided(val.shape, val.stride(), dtype=val.dtype, device="cpu")
            for val in taken
        ]
        graph_module = _without_writes(graph_module, fakes)
    result = Functional(graph_module, constants=constants)
    placeholders = {
        node: i
        for i, node in enumerate(n for n in graph_module.graph.nodes if n.op == "placeholder")
    }
    for node in list(graph_module.graph.nodes):
        if node.target is aten.copy_.default and node.args[0] in placeholders:
            result.written[placeholders[node.args[0]]] = node.args[1]
            graph_module.graph.erase_node(node)
    return result
