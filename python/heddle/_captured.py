"""A captured step before it becomes a graph of Heddle, and how it is put together."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import getitem
from typing import Any

import torch
from torch import Tensor, fx

from ._functional import Functional, is_same
from ._torch_names import OpOverload
from ._trace import Leaf, Traced
from .optim import AdamW, OptimizerNodes
from .rules import Rules

__all__ = ["CapturedStep", "Parameter", "assemble", "with_flat_results"]

aten: Any = torch.ops.aten


@dataclass(frozen=True)
class Parameter:
    """A parameter of a captured model.

    >>> from heddle.capturing import Parameter
    >>> import torch
    >>> Parameter("head.weight", (256, 64), torch.float32, tied=("embed.weight",))
    Parameter(head.weight: float32[256, 64], tied: embed.weight)
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    # Other names of the same tensor.
    tied: tuple[str, ...] = ()
    trained: bool = True
    # The unit of FSDP.
    unit: str | None = None

    def __repr__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        tied = f", tied: {', '.join(self.tied)}" if self.tied else ""
        frozen = "" if self.trained else ", frozen"
        return f"Parameter({self.name}: {dtype}{list(self.shape)}{tied}{frozen})"


@dataclass(frozen=True)
class CapturedStep:
    """A training step as a `torch.fx.GraphModule` of ATen ops, with the role of each tensor.

    The graph module runs: it takes tensors in the order of `inputs`, gives those of `outputs`, and
    writes to none. Its nodes have `heddle_phase`, `heddle_scope` and `val` in their `meta`.

    - `inputs`: for each placeholder `role`, `index`, `label`, `unit` and `tied`.
    - `outputs`: for each output `role`, `index`, `label` and `input`, the input that it updates.
    - `parameters`: the parameters, in registration order.
    - `remarks`: what capture assumed, one sentence each.
    - `constants`: values of inputs that are no part of the model's state.

    >>> import torch
    >>> from heddle.capturing import Spec, trace_step
    >>> model = torch.nn.Linear(4, 2)
    >>> captured = trace_step(model, {"input": Spec((8, 4))}, loss=lambda m, b: m(**b).sum())
    >>> [(one["role"], one["label"]) for one in captured.inputs]
    [('param', 'weight'), ('param', 'bias'), ('batch', 'input')]
    >>> [one["role"] for one in captured.outputs]
    ['loss', 'grad', 'grad']
    """

    graph_module: fx.GraphModule
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    parameters: list[Parameter]
    remarks: list[str]
    constants: dict[str, Tensor] = field(default_factory=dict)

    def calls(self) -> int:
        """The number of ops.

        >>> import torch
        >>> from heddle.capturing import Spec, trace_step
        >>> trace_step(torch.nn.Linear(4, 1), Spec((1, 4))).calls() > 0
        True
        """
        return sum(
            isinstance(n.target, OpOverload) for n in self.graph_module.graph.nodes
        )

    def __repr__(self) -> str:
        numbers = sum(torch.Size(one.shape).numel() for one in self.parameters)
        return f"CapturedStep({self.calls():,} nodes, {numbers:,} parameters)"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(one.name)}</td><td>{str(one.dtype).removeprefix('torch.')}</td>"
            f"<td>{'&times;'.join(map(str, one.shape))}</td><td>{html.escape(one.unit or '')}</td>"
            f"<td>{html.escape(', '.join(one.tied))}</td></tr>"
            for one in self.parameters
        )
        remarks = "".join(f"<li>{html.escape(one)}</li>" for one in self.remarks)
        return (
            f"<details><summary>{html.escape(repr(self))}</summary><table><tr><th>parameter</th>"
            f"<th>type</th><th>shape</th><th>unit</th><th>tied</th></tr>{rows}</table>"
            f"<ul>{remarks}</ul></details>"
        )


def _role(role: str, label: str, **fields: Any) -> dict[str, Any]:
    return {"role": role, "index": None, "label": label, "unit": None, "tied": [], **fields}


def _result(role: str, **fields: Any) -> dict[str, Any]:
    return {"role": role, "index": None, "input": None, "label": "", **fields}


def _is_dense(node: fx.Node) -> bool:
    """Whether a result has the strides that `aten.new_empty` gives it."""
    dense: bool = node.meta["val"].is_contiguous()
    return dense


class _Assembler:
    """Copies nodes into a new graph, whose placeholders have the names of their tensors."""

    def __init__(
        self, leaves: Sequence[Leaf], traced: Traced, functional: Functional, rules: Rules
    ) -> None:
        self._leaves = leaves
        self._traced = traced
        self._functional = functional
        self._rules = rules
        self._graph = fx.Graph()
        self._new: dict[fx.Node, fx.Node] = {}
        self._old = [n for n in functional.graph_module.graph.nodes if n.op == "placeholder"]
        self._of_label: dict[str, fx.Node] = {}
        self._positions: dict[fx.Node, int] = {}
        self.inputs: list[dict[str, Any]] = []
        self.outputs: list[dict[str, Any]] = []
        self._results: list[fx.Node] = []
        self.constants: dict[str, Tensor] = {}
        self._moments: dict[str, tuple[fx.Node, fx.Node]] = {}
        self._mode = next(n.meta["val"].fake_mode for n in self._old)

    def _placeholder(self, name: str, val: Any, given: dict[str, Any]) -> fx.Node:
        name = re.sub(r"\W", "_", name) or "input"
        node = self._graph.placeholder(f"_{name}" if name[0].isdigit() else name)
        node.target = node.name
        node.meta["val"] = val
        self._positions[node] = len(self.inputs)
        self.inputs.append(given)
        return node

    def _add_leaf(self, index: int, given: dict[str, Any]) -> None:
        old, leaf = self._old[index], self._leaves[index]
        name = leaf.label if leaf.label != "" else leaf.role
        node = self._placeholder(name, old.meta["val"], given)
        self._new[old] = self._of_label[f"{leaf.role} {leaf.label}"] = node

    def add_inputs(self, optimizer: AdamW | None, target: str) -> None:
        leaves = self._leaves
        self._indices = {leaf.label: i for i, leaf in enumerate(leaves) if leaf.role == "param"}
        for label, index in self._indices.items():
            unit, tied = self._rules.unit(label), list(leaves[index].tied)
            self._add_leaf(index, _role("param", label, index=index, unit=unit, tied=tied))
        if optimizer is not None:
            self._add_state(target)
        for index, leaf in enumerate(leaves):
            if leaf.role == "buffer":
                self._add_leaf(index, _role("buffer", leaf.label, tied=list(leaf.tied)))
        self._add_constants()
        for index, leaf in enumerate(leaves):
            if leaf.role == "batch":
                self._add_leaf(index, _role("batch", leaf.label))

    def _add_state(self, target: str) -> None:
        for label in self._traced.gradients:
            index = self._indices[label]
            val = self._old[index].meta["val"].detach()
            first, second = (
                self._placeholder(f"{label}_{kind}", val, _role("opt", kind, index=index))
                for kind in ("exp_avg", "exp_avg_sq")
            )
            self._moments[label] = (first, second)
        # The fused kernel takes an f64 from the host, or an f32 from the device.
        wide = torch.float32 if target == "cuda" else torch.float64
        with self._mode:
            numbers = {"lr": torch.empty((), dtype=wide), "step": torch.empty(())}
        lr, step = (
            self._placeholder(name, val, _role("hyper", name)) for name, val in numbers.items()
        )
        self._hyper = (lr, step)

    def _add_constants(self) -> None:
        """A number becomes a node `aten.full`; other constants are buffers."""
        self._numbers: dict[fx.Node, Any] = {}
        last = self._old[len(self._leaves) :]
        for old, value in zip(last, self._functional.constants, strict=True):
            if value.dim() == 0 and not value.is_complex():
                self._numbers[old] = value
                continue
            label = f"constant.{len(self.constants)}"
            self.constants[label] = value
            self._new[old] = self._placeholder(label, old.meta["val"], _role("buffer", label))

    def copy_nodes(self) -> None:
        for old, value in self._numbers.items():
            first = next(iter(old.users), None)
            options = {"dtype": value.dtype, "device": torch.device("cpu")}
            node = self._graph.call_function(aten.full.default, ([], value.item()), options)
            scope = first.meta.get("heddle_scope", "") if first is not None else ""
            node.meta.update(val=old.meta["val"], heddle_phase="fwd", heddle_scope=scope)
            self._new[old] = node
        for old in self._functional.graph_module.graph.nodes:
            if old.op == "call_function":
                if is_same(old):
                    self._new[old] = self._new[old.args[0]]
                    continue
                new = self._new[old] = self._graph.node_copy(old, self._new.__getitem__)
                if new.target is aten.new_empty_strided.default and _is_dense(new):
                    new.target, new.args = aten.new_empty.default, new.args[:2]

    def _give(self, node: fx.Node, given: dict[str, Any]) -> None:
        self._results.append(node)
        self.outputs.append(given)

    def add_outputs(self, optimizer: AdamW | None) -> None:
        output = next(
            n for n in reversed(self._functional.graph_module.graph.nodes) if n.op == "output"
        )
        values = [self._new[old] for old in output.args[0]]
        labels = self._traced.gradients
        grads = dict(zip(labels, values[1 : 1 + len(labels)], strict=True))
        replaced = dict(zip(self._traced.replaced, values[1 + len(labels) :], strict=True))
        self._give(values[0], _result("loss"))
        for label, grad in grads.items():
            self._give(grad, _result("grad", index=self._indices[label]))
        if optimizer is not None:
            self._add_updates(optimizer, grads)
        for index, leaf in enumerate(self._leaves):
            if leaf.role != "buffer":
                continue
            node = self._of_label[f"buffer {leaf.label}"]
            old = self._functional.written.get(index)
            value = replaced.get(leaf.label, None if old is None else self._new[old])
            if value is not None and value is not node:
                given = _result("buffer_update", input=self._positions[node], label=leaf.label)
                self._give(value, given)

    def _add_updates(self, optimizer: AdamW, grads: Mapping[str, fx.Node]) -> None:
        nodes = OptimizerNodes(self._graph, optimizer, self._mode)
        factor = None
        if optimizer.max_norm > 0:
            norm, factor = nodes.clip_factor(list(grads.values()))
            self._give(norm, _result("metric", label="grad_norm"))
        for label, grad in grads.items():
            parameter = self._of_label[f"param {label}"]
            moments = self._moments[label]
            scope = label.rpartition(".")[0]
            new = nodes.update(parameter, grad, moments, self._hyper, factor, scope)
            for old, value in zip(
                (parameter, *moments), (new.parameter, new.exp_avg, new.exp_avg_sq), strict=True
            ):
                given = _result("update", input=self._positions[old], index=self._indices[label])
                self._give(value, given)

    def finish(self) -> fx.GraphModule:
        self._graph.output(tuple(self._results))
        self._graph.eliminate_dead_code()
        return fx.GraphModule(torch.nn.Module(), self._graph, "Step")


def assemble(
    leaves: Sequence[Leaf],
    traced: Traced,
    functional: Functional,
    *,
    optimizer: AdamW | None,
    rules: Rules,
    target: str,
    remarks: Sequence[str],
) -> CapturedStep:
    """The step with its placeholders in Heddle's order: parameters, optimizer, buffers, batch."""
    assembler = _Assembler(leaves, traced, functional, rules)
    assembler.add_inputs(optimizer, target)
    assembler.copy_nodes()
    assembler.add_outputs(optimizer)
    parameters = [
        Parameter(
            leaf.label,
            tuple(leaf.tensor.shape),
            leaf.tensor.dtype,
            leaf.tied,
            leaf.trained,
            rules.unit(leaf.label),
        )
        for leaf in leaves
        if leaf.role == "param"
    ]
    return CapturedStep(
        assembler.finish(),
        assembler.inputs,
        assembler.outputs,
        parameters,
        list(remarks),
        assembler.constants,
    )


def with_flat_results(graph_module: fx.GraphModule) -> fx.GraphModule:
    """A copy whose calls give one flat list of results, as calls of Heddle do.

    `aten._fused_adamw` gives five lists of tensors. Item 0 of item 2 becomes item 2 of all.
    """
    graph = fx.Graph()
    new: dict[fx.Node, fx.Node] = {}
    # Items that are lists: the call, and the number of tensors before the list.
    lists: dict[fx.Node, tuple[fx.Node, int]] = {}
    for node in graph_module.graph.nodes:
        if node.target is not getitem:
            new[node] = graph.node_copy(node, new.__getitem__)
            continue
        source, index = node.args
        if isinstance(node.meta["val"], list) and source not in lists:
            before = sum(len(tensors) for tensors in source.meta["val"][:index])
            lists[node] = (source, before)
            continue
        call, before = lists.get(source, (source, 0))
        item = new[node] = graph.call_function(getitem, (new[call], before + index))
        item.meta.update(node.meta)
    return fx.GraphModule(torch.nn.Module(), graph)
