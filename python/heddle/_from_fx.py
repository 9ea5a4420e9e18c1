"""Reads back what `Program.to_fx` wrote, after any change to it, as a graph of Heddle."""

from __future__ import annotations

import json
from operator import getitem
from typing import Any

import torch
from torch import Tensor, fx

from ._core import Graph
from ._parts import DTYPE_NAMES
from ._torch_names import OpOverload
from .errors import CaptureError, Diagnostic

__all__ = ["read_fx_text"]

_COLLECTIVES = {
    "all_gather_into_tensor": "comm.all_gather",
    "reduce_scatter_tensor": "comm.reduce_scatter",
    "all_reduce": "comm.all_reduce",
    "all_to_all_single": "comm.all_to_all",
}
# What a graph of Heddle leaves to the runtime.
_AMBIENT = ("device", "layout", "pin_memory", "non_blocking", "generator")
_FORMATS = {
    torch.contiguous_format: "contiguous",
    torch.preserve_format: "preserve",
    torch.channels_last: "channels_last",
}


def _facts(node: fx.Node) -> dict[str, Any]:
    custom = node.meta.get("custom")
    facts = custom.get("heddle") if isinstance(custom, dict) else None
    return dict(facts) if isinstance(facts, dict) else {}


def _refuse(node: fx.Node, message: str) -> CaptureError:
    source = node.format_node() or node.name
    return CaptureError("", [Diagnostic("fx-node", f"node `{node.name}` {message}", source=source)])


class _Reader:
    def __init__(self, module: fx.GraphModule) -> None:
        self._module = module
        self._lines: list[str] = []
        # The names of a node's results: one, a list, or lists.
        self._names: dict[fx.Node, Any] = {}
        self._taken: set[str] = set()
        self._phase = "fwd"
        # Streams and axes by the name of their group.
        self._groups: dict[str, tuple[list[str], int]] = {}

    def read(self) -> Graph:
        header = self._module.meta["heddle"]
        inputs, outputs = [], []
        for node in self._module.graph.nodes:
            facts = _facts(node)
            if node.op == "placeholder":
                name = self._own_name(node, facts)
                inputs.append(f"%{name}: {facts.get('input') or self._type(node.meta['val'])}")
                self._names[node] = name
            elif node.op == "output":
                outputs = self._outputs(node, facts)
            elif node.op != "call_function":
                raise _refuse(node, f"is a {node.op}, expected a call of an op")
            elif node.target is getitem:
                self._add_item(node)
            elif not facts.get("part"):
                self._add_call(node, facts)
        mesh = f"{header['mesh']}\n" if header["mesh"] else ""
        lines = "\n".join(self._lines)
        text = (
            f"heddle 1 local\n{mesh}graph @{header['name']}({', '.join(inputs)}) -> "
            f"({', '.join(outputs)}) {{\n{lines}\n}}\n"
        )
        return Graph.parse(text, "fx")

    def _own_name(self, node: fx.Node, facts: dict[str, Any], index: int = 0) -> str:
        names = facts.get("names") or []
        base = f"{node.name}_{index}" if index else node.name
        if index < len(names):
            base = names[index]
        name, number = base, 0
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name

    def _outputs(self, node: fx.Node, facts: dict[str, Any]) -> list[str]:
        values = node.args[0]
        if not isinstance(values, (tuple, list)):
            raise _refuse(node, "is not a tuple of tensors")
        forms = facts.get("outputs")
        if forms is None or len(forms) != len(values):
            raise _refuse(node, f"has {len(values)} outputs, and {len(forms or [])} roles")
        names = [self._name(node, value) for value in values]
        return [
            f"{before}%{name}{after}"
            for (before, after), name in zip(forms, names, strict=True)
        ]

    def _name(self, user: fx.Node, value: Any) -> str:
        name = self._names.get(value)
        if not isinstance(name, str):
            raise _refuse(user, f"reads {value}, which is not a tensor of the graph")
        return name

    def _add_item(self, node: fx.Node) -> None:
        source, index = node.args
        assert isinstance(source, fx.Node)
        names = self._names.get(source)
        if names is None and _facts(source).get("part"):
            return
        if not isinstance(names, list) or not isinstance(index, int):
            raise _refuse(node, "is an item of no list")
        self._names[node] = names[index]

    def _result_names(self, node: fx.Node, facts: dict[str, Any]) -> tuple[Any, list[str]]:
        """The names as calls return them, and in one list."""
        value = node.meta.get("val")
        if isinstance(value, (list, tuple)):
            flat: list[str] = []
            names: list[Any] = []
            for one in value:
                if isinstance(one, (list, tuple)):
                    part = [self._own_name(node, facts, len(flat) + i) for i in range(len(one))]
                    flat += part
                    names.append(part)
                elif isinstance(one, (int, torch.SymInt)):
                    names.append(None)
                else:
                    flat.append(self._own_name(node, facts, len(flat)))
                    names.append(flat[-1])
            return names, flat
        name = self._own_name(node, facts)
        return name, [name]

    def _add_call(self, node: fx.Node, facts: dict[str, Any]) -> None:
        if not isinstance(node.target, OpOverload):
            raise _refuse(node, f"calls {node.target}, which is not an op of ATen")
        phase = facts.get("phase", self._phase)
        if phase != self._phase:
            self._lines.append(f" {phase}:")
            self._phase = phase
        op, arguments = self._call_text(node, facts)
        names, flat = self._result_names(node, facts)
        self._names[node] = names
        line = f"  {', '.join('%' + name for name in flat)} = {op}({', '.join(arguments)})"
        types = facts.get("types")
        if types:
            line += f" : {types[0] if len(types) == 1 else '(' + ', '.join(types) + ')'}"
        if facts.get("scope"):
            line += f" @{facts['scope']}"
        if facts.get("stream"):
            line += f" stream={facts['stream']}"
        keep = facts.get("keep")
        if keep:
            line += f" keep={keep[0] if len(flat) == 1 else '[' + ','.join(keep) + ']'}"
        self._lines.append(line)

    def _call_text(self, node: fx.Node, facts: dict[str, Any]) -> tuple[str, list[str]]:
        target = node.target
        assert isinstance(target, OpOverload)
        if "op" in facts:
            given = dict(facts.get("attrs", {}))
            operands = self._operands(node)
            if facts["op"] in ("comm.dispatch", "comm.combine"):
                # The counts of received rows come first in the call, then those of sent rows.
                rows, received, sent = dict.fromkeys(operands)
                operands = [rows, sent, received]
            elif facts["op"] == "comm.wait":
                # The counts of rows that come belong to the launch.
                operands = operands[:1]
            arguments = [f"%{self._name(node, operand)}" for operand in operands]
            for key, value in given.items():
                if value or key == "size":
                    arguments.append(f"{key}={value if key == 'why' else self._text(value)}")
            if "over" in facts:
                arguments.append(f"over=[{','.join(facts['over'])}]")
            return facts["op"], arguments
        if target.namespace == "_c10d_functional":
            return self._collective_text(node, facts, target._schema.name.partition("::")[2])
        sizes = facts.get("sizes", {})
        given = {}
        for argument, value in zip(target._schema.arguments, node.args, strict=False):
            given[argument.name] = value
        given.update(node.kwargs)
        # Required tensors by position, everything else by name.
        tensors, arguments = [], []
        for argument in target._schema.arguments:
            if argument.name not in given or argument.name in _AMBIENT:
                continue
            value = sizes.get(argument.name, given[argument.name])
            if argument.name in sizes:
                text = self._sizes(value)
            elif value is None and "Tensor" in str(argument.type):
                continue
            else:
                text = self._text(value, node)
            kind = str(argument.type)
            if "Tensor" in kind and not kind.startswith("Optional"):
                tensors.append(text)
            else:
                arguments.append(f"{argument.name}={text}")
        return str(target).removesuffix(".default"), tensors + arguments

    def _collective_text(
        self, node: fx.Node, facts: dict[str, Any], name: str
    ) -> tuple[str, list[str]]:
        arguments = [f"%{self._name(node, self._operands(node)[0])}"]
        if name == "wait_tensor":
            return "comm.wait", arguments
        if name not in _COLLECTIVES or "over" not in facts:
            raise _refuse(node, "is a collective that Heddle did not write")
        arguments.append(f"over=[{','.join(facts['over'])}]")
        if name == "all_to_all_single":
            arguments += ["split_dim=0", "concat_dim=0"]
        if name in ("reduce_scatter_tensor", "all_reduce"):
            arguments.append(f"op={node.args[1]}")
        arguments.append(f"why={facts['why']}")
        if facts.get("unit"):
            arguments.append(f"unit={json.dumps(facts['unit'])}")
        return _COLLECTIVES[name], arguments

    def _operands(self, node: fx.Node) -> list[fx.Node]:
        """The tensors that a node of several calls reads, each once for each use."""
        found: list[fx.Node] = []
        seen: set[fx.Node] = set()

        def visit(one: fx.Node) -> None:
            for source in one.all_input_nodes:
                if not _facts(source).get("part"):
                    found.append(source)
                elif source not in seen:
                    seen.add(source)
                    visit(source)

        visit(node)
        return found

    def _sizes(self, value: Any) -> str:
        if isinstance(value, list):
            return f"[{','.join(str(item) for item in value)}]"
        return str(value)

    def _text(self, value: Any, node: fx.Node | None = None) -> str:
        if isinstance(value, fx.Node):
            assert node is not None
            return f"%{self._name(node, value)}"
        if isinstance(value, (list, tuple)):
            return f"[{','.join(self._text(item, node) for item in value)}]"
        if value is None:
            return "none"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, torch.dtype):
            return DTYPE_NAMES[value]
        if isinstance(value, torch.memory_format):
            return _FORMATS[value]
        if isinstance(value, complex):
            return f"complex({value.real},{value.imag})"
        if isinstance(value, str):
            return json.dumps(value)
        return repr(value)

    def _type(self, value: Any) -> str:
        assert isinstance(value, Tensor)
        return f"{DTYPE_NAMES[value.dtype]}[{','.join(map(str, value.shape))}]"


def read_fx_text(module: fx.GraphModule) -> Graph:
    """The graph of an FX graph that `Program.to_fx` wrote."""
    return _Reader(module).read()
