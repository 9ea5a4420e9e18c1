"""A local graph of Heddle as a `torch.fx.GraphModule` of ATen and functional collectives."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from operator import getitem
from typing import Any

import torch
from torch import fx

from ._core import Graph, Node, Value
from ._fx_experts import combine, dispatch, wait_for_dispatch
from ._groups import Groups
from ._parts import DTYPES, Place, fail
from ._torch_names import FakeTensorMode, cpu_grouped_products, functional

__all__ = ["write_fx"]

aten: Any = torch.ops.aten
_FORMATS = {
    "contiguous": torch.contiguous_format,
    "preserve": torch.preserve_format,
    "channels_last": torch.channels_last,
}
_PART = re.compile(r"\d+\{[\w,]+\}$")


def overload_of(op: str) -> Any:
    """The op of torch with Heddle's name: `aten.add.Tensor`, `aten.mm`."""
    space, name, *overload = op.split(".")
    try:
        packet = getattr(getattr(torch.ops, space), name)
        return getattr(packet, overload[0] if overload else "default")
    except AttributeError:
        raise fail("op", f"{op} is not an op of this torch ({torch.__version__})") from None


class _Writer:
    def __init__(self, graph: Graph, place: Place, groups: Groups | None, device: str) -> None:
        self._source = graph
        self._place = place
        self._groups = groups
        self._device = torch.device(device)
        self._graph = fx.Graph()
        self._mode = FakeTensorMode()
        self._nodes: dict[str, fx.Node] = {}
        # Tensors whose number of rows is a symbol, by its name.
        self._symbols: dict[str, fx.Node] = {}
        # Facts of the node of Heddle that is being written.
        self._facts: dict[str, Any] = {}
        self._phase = "fwd"
        self._scope = ""

    def write(self) -> fx.GraphModule:
        for value in self._source.inputs:
            self._add_input(value)
        for node in self._source.nodes:
            self._add_node(node)
        outputs = list(self._source.outputs)
        result = self._graph.output(tuple(self._nodes[one.value.name] for one in outputs))
        result.meta["custom"] = {
            "heddle": {"outputs": [_around(str(one), one.value.name) for one in outputs]}
        }
        self._graph.lint()
        module = fx.GraphModule(torch.nn.Module(), self._graph, "HeddleProgram")
        lines = str(self._source).splitlines()
        module.meta["heddle"] = {
            "name": self._source.name,
            "mesh": lines[1] if lines[1].startswith("mesh") else "",
        }
        return module

    def _add_input(self, value: Value) -> None:
        node = self._graph.placeholder(_identifier(value.name))
        sizes = [self._place.size(size) for size in value.shape]
        with self._mode:
            node.meta["val"] = torch.empty(sizes, dtype=DTYPES[value.dtype], device=self._device)
        text = str(value).partition(": ")[2]
        node.meta["custom"] = {"heddle": {"names": [value.name], "input": text}}
        self._nodes[value.name] = node

    def _call(self, target: Any, *args: Any, part: bool = True, **kwargs: Any) -> fx.Node:
        """A call. `part`: a step towards the node of Heddle, not its result."""
        values = fx.map_arg((args, kwargs), lambda n: n.meta["val"])
        with self._mode, torch.no_grad():
            val = target(*values[0], **values[1])
        return self._call_as(val, target, *args, part=part, **kwargs)

    def _call_as(
        self, val: Any, target: Any, *args: Any, part: bool = True, **kwargs: Any
    ) -> fx.Node:
        """A call whose result is stated, because it depends on data."""
        node = self._graph.call_function(target, args, kwargs)
        node.meta["val"] = val
        facts = {"part": True} if part else self._facts
        node.meta["custom"] = {
            "module_fqn": self._scope,
            "heddle": {"phase": self._phase, "scope": self._scope, **facts},
        }
        node.meta["heddle_phase"], node.meta["heddle_scope"] = self._phase, self._scope
        if self._phase == "bwd":
            node.meta["autograd_backward"] = True
            node.meta["partitioner_tag"] = "is_backward"
        return node

    def _add_node(self, node: Node) -> None:
        self._phase, self._scope = node.phase, node.scope
        results = node.results
        self._facts = {"names": [value.name for value in results]}
        if node.stream:
            self._facts["stream"] = node.stream
        keeps = [value.keep or "default" for value in results]
        if any(keep != "default" for keep in keeps):
            self._facts["keep"] = keeps
        for key in ("why", "unit", "over"):
            if key in node.attrs:
                self._facts[key] = node.attrs[key]
        if node.opaque:
            self._facts["types"] = [value.type for value in results]
        special = _SPECIAL.get(node.op)
        if special is not None:
            self._nodes[results[0].name] = special(self, node)
        elif node.op.startswith(("comm.", "shard.", "mem.")):
            raise fail("op", f"{node.op} of %{results[0].name} has no form in ATen")
        else:
            self._add_call(node)

    def _add_call(self, node: Node) -> None:
        target = overload_of(node.op)
        given: dict[str | int, Any] = dict(node.tensors)
        given.update(node.attrs)
        sizes = {}
        for name, value in node.attrs.items():
            items = value if isinstance(value, list) else [value]
            if any(self._is_size(item) for item in items):
                sizes[name] = value
        if sizes:
            # The text has sizes of all ranks, the call those of this one.
            self._facts["sizes"] = sizes
        args, kwargs = self._arguments(target, given)
        call = self._call(target, *args, part=False, **kwargs)
        self._add_results(node.results, call)

    def _arguments(self, target: Any, given: dict[Any, Any]) -> tuple[list[Any], dict[str, Any]]:
        arguments = target._schema.arguments
        takes_tensor = any(isinstance(one, (Value, list)) and one for one in given.values())
        found = _by_name(arguments, given)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        positional = True
        for argument in arguments:
            name = argument.name
            positional = positional and not argument.kwarg_only
            if name not in found and name == "device" and self._device.type != "cpu":
                if not takes_tensor:
                    kwargs["device"] = self._device
            elif name not in found and argument.has_default_value():
                positional = False
            elif positional:
                args.append(self._argument(found.get(name)))
            else:
                kwargs[name] = self._argument(found.get(name))
        return args, kwargs

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Value):
            return self._nodes[value.name]
        if isinstance(value, list):
            return [self._argument(item) for item in value]
        if isinstance(value, str):
            if value in DTYPES:
                return DTYPES[value]
            if value in _FORMATS:
                return _FORMATS[value]
            if _PART.match(value):
                return self._place.size(value)
            if value in self._symbols:
                rows = self._symbols[value]
                return self._call_as(rows.meta["val"].shape[0], aten.sym_size.int, rows, 0)
        return value

    def _is_size(self, value: Any) -> bool:
        """Whether a size is that of a part, or a symbol."""
        return isinstance(value, str) and (bool(_PART.match(value)) or value in self._symbols)

    def _add_results(self, results: Sequence[Value], call: fx.Node) -> None:
        """Names the results: a tensor, a list of them, or lists as `_fused_adamw` gives."""
        val = call.meta["val"]
        if not isinstance(val, (list, tuple)):
            self._nodes[results[0].name] = call
            return
        lists: dict[int, fx.Node] = {}
        places: list[tuple[int | None, int]] = []
        for k, one in enumerate(val):
            if isinstance(one, (list, tuple)):
                places += [(k, i) for i in range(len(one))]
            # Numbers, such as the lengths that attention returns, are attributes of their readers.
            elif not isinstance(one, (int, torch.SymInt)):
                places.append((None, k))
        outputs = {one.value.name for one in self._source.outputs}
        for value, (which, index) in zip(results, places, strict=True):
            if not value.users and value.name not in outputs:
                continue
            if which is not None and which not in lists:
                lists[which] = self._item(call, which)
            source = call if which is None else lists[which]
            self._nodes[value.name] = self._item(source, index)

    def _item(self, node: fx.Node, index: int) -> fx.Node:
        item = self._graph.call_function(getitem, (node, index))
        item.meta["val"] = node.meta["val"][index]
        for key in ("heddle_phase", "heddle_scope", "autograd_backward", "partitioner_tag"):
            if key in node.meta:
                item.meta[key] = node.meta[key]
        item.meta["custom"] = {"module_fqn": self._scope, "heddle": {"item": True}}
        return item

    # What ATen's names do not say.

    def _operand(self, node: Node, index: int = 0) -> fx.Node:
        value = node.operand(index)
        assert value is not None
        return self._nodes[value.name]

    def _group(self, node: Node) -> Any:
        assert self._groups is not None, "a program of one rank has no collectives"
        return self._groups.find(node.attrs["over"], node.stream)

    def _note(self, node: Node, *names: str) -> None:
        """States the op and some of its attributes for `from_fx`."""
        attrs = {name: node.attrs[name] for name in names if node.attrs.get(name) is not None}
        self._facts.update(op=node.op, over=node.attrs["over"], attrs=attrs)

    def _collective(self, node: Node) -> fx.Node:
        name = node.results[0].name
        if len(node.operands) != 1 or "scale" in node.attrs:
            raise fail("packed", f"%{name} is not packed: run the pass `pack-collectives` first")
        dims = [node.attrs.get(key, 0) for key in ("dim", "split_dim", "concat_dim")]
        sent = node.operand(0)
        uneven = sent is None or any(isinstance(size, str) for size in sent.shape)
        if any(dims) or uneven or node.attrs.get("sizes") is not None:
            raise fail("packed", f"%{name} moves unequal parts, or not along dimension 0")
        group = self._group(node)
        x, size, how = self._operand(node), group.size(), node.attrs.get("op", "sum")
        if not x.meta["val"].is_contiguous():
            # Newer versions of torch copy in the collective; 2.11 refuses.
            contiguous = torch.contiguous_format
            x = self._call(aten.clone.default, x, memory_format=contiguous)
        self._facts.update(over=node.attrs["over"])
        if node.op == "comm.all_gather":
            target: Any = functional.all_gather_into_tensor.default
            args: tuple[Any, ...] = (x, size, group.group_name)
        elif node.op == "comm.reduce_scatter":
            target = functional.reduce_scatter_tensor.default
            args = (x, how, size, group.group_name)
        elif node.op == "comm.all_reduce":
            target = functional.all_reduce.default
            args = (x, how, group.group_name)
        else:
            rows = [x.meta["val"].shape[0] // size] * size
            target = functional.all_to_all_single.default
            args = (x, rows, rows, group.group_name)
        return self._call(target, *args, part=False)

    def _wait(self, node: Node) -> fx.Node:
        handle = node.operand(0)
        launch = handle.producer if handle is not None else None
        if launch is not None and launch.op.startswith("mem."):
            self._facts["op"] = "comm.wait"
            return self._call(aten.alias.default, self._operand(node), part=False)
        if launch is not None and launch.op == "comm.dispatch":
            self._facts["op"] = "comm.wait"
            rows = wait_for_dispatch(self, launch, self._operand(node))
            if launch.attrs.get("size") is not None:
                self._symbols[launch.attrs["size"]] = rows
            return rows
        return self._call(functional.wait_tensor.default, self._operand(node), part=False)

    def _slice(self, node: Node) -> fx.Node:
        x, dim = self._operand(node), node.attrs.get("dim", 0)
        begin, size = self._place.part(x.meta["val"].shape[dim], node.attrs["over"])
        self._facts.update(op=node.op, attrs={"dim": dim})
        part = self._call(aten.slice.Tensor, x, dim, begin, begin + size)
        contiguous = torch.contiguous_format
        return self._call(aten.clone.default, part, part=False, memory_format=contiguous)

    def _bound(self, node: Node) -> fx.Node:
        whole, end = node.attrs["size"], node.attrs.get("end", False)
        begin, size = self._place.part(whole, node.attrs["over"])
        self._facts.update(op=node.op, attrs={"size": whole, "end": end})
        options = {"dtype": torch.int64, "device": self._device}
        number = begin + size if end else begin
        return self._call(aten.full.default, [], number, part=False, **options)

    def _move(self, node: Node) -> fx.Node:
        device = torch.device("cpu") if node.op == "mem.offload" else self._device
        self._facts["op"] = node.op
        # A copy: `_to_copy` to the same device would keep the storage.
        if device.type == "cpu" and self._device.type == "cpu":
            return self._call(aten.clone.default, self._operand(node), part=False)
        copied = {"device": device, "non_blocking": True}
        return self._call(aten._to_copy.default, self._operand(node), part=False, **copied)

    def _squared_norm(self, node: Node) -> fx.Node:
        places, count = node.attrs.get("places") or [], node.attrs.get("count", 0)
        self._facts.update(op=node.op, attrs={"places": places, "count": count})
        operands = [self._nodes[one.name] for one in node.operands if one is not None]
        norms = self._call(aten._foreach_norm.Scalar, operands, 2)
        items = []
        for i in range(len(operands)):
            items.append(self._item(norms, i))
            items[-1].meta["custom"]["heddle"] = {"part": True}
        stacked = self._call(aten.stack.default, items)
        squares = self._call(aten.mul.Tensor, stacked, stacked, part=bool(places))
        if not places:
            return squares
        found = self._call(aten.new_zeros.default, squares, [count])
        for i, place in enumerate(places):
            one = self._call(aten.select.int, squares, 0, i)
            last = i + 1 == len(places)
            found = self._call(aten.select_scatter.default, found, one, 0, place, part=not last)
        return found

    def _normalize(self, node: Node) -> fx.Node:
        self._facts.update(op=node.op, attrs={"eps": node.attrs["eps"]})
        matrix = self._call(aten.contiguous.default, self._operand(node))
        norm = self._call(aten.linalg_vector_norm.default, matrix)
        least = self._call(aten.clamp_min.default, norm, node.attrs["eps"])
        return self._call(aten.div.Tensor, matrix, least, part=False)


_SPECIAL: dict[str, Callable[[_Writer, Node], fx.Node]] = {
    "comm.all_gather": _Writer._collective,
    "comm.reduce_scatter": _Writer._collective,
    "comm.all_reduce": _Writer._collective,
    "comm.all_to_all": _Writer._collective,
    "comm.dispatch": dispatch,
    "comm.combine": combine,
    "comm.wait": _Writer._wait,
    "shard.slice": _Writer._slice,
    "shard.bound": _Writer._bound,
    "mem.offload": _Writer._move,
    "mem.reload": _Writer._move,
    "heddle.squared_norm": _Writer._squared_norm,
    "heddle.normalize": _Writer._normalize,
}


def _identifier(name: str) -> str:
    name = re.sub(r"\W", "_", name)
    return f"_{name}" if name[:1].isdigit() else name


def _around(text: str, name: str) -> tuple[str, str]:
    """The text of an output, `grad 0 %g of f32[8]`, before and after its value."""
    before, _, after = text.rpartition(f"%{name}")
    return before, after


def write_fx(graph: Graph, place: Place, groups: Groups | None, device: str) -> fx.GraphModule:
    """The graph that one rank runs. Its collectives move one tensor along dimension 0."""
    kernels = cpu_grouped_products if device == "cpu" else contextlib.nullcontext
    with kernels():
        return _Writer(graph, place, groups, device).write()


def _by_name(arguments: Sequence[Any], given: Mapping[Any, Any]) -> dict[str, Any]:
    """Arguments by name; those of an opaque op may be called `a2`, or be tensors without names."""
    found: dict[str, Any] = {}
    required, optional = [], []
    for at, argument in enumerate(arguments):
        name = argument.name
        key = name if name in given else f"a{at}"
        if key in given:
            found[name] = given[key]
        elif "Tensor" in str(argument.type):
            optional.append(name)
            if not str(argument.type).startswith("Optional"):
                required.append(name)
    unnamed = [value for key, value in given.items() if isinstance(key, int)]
    # A writer that names optional tensors passes as many others as the schema requires.
    names = optional if len(unnamed) > len(required) else required
    return {**found, **dict(zip(names, unnamed, strict=False))}
