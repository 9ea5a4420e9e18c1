"""Passes written in Python, which the pass manager treats as any other."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, overload

from . import _core
from ._core import Graph, Node, Value
from .errors import Diagnostic, Error, PassError, RunError

__all__ = ["Edit", "GraphPass", "NewValue", "graph_pass"]

# Names of values, outside of quoted texts.
_NAMES = re.compile(r'"(?:[^"\\]|\\.)*"|%([\w.!]+)')
# Words of the text that are no strings.
_WORDS = frozenset(
    "f64 f32 f16 bf16 f8e4m3 f8e5m2 c64 c128 i64 i32 i16 i8 u64 u8 bool contiguous preserve "
    "channels_last unshard grad tensor expert loss norm sum avg min max product inf nan".split()
)
_NUMERICS = ("exact", "regrouping", "rounding")
# The most memory of values for which a call of an exact pass compares bits.
_MOST_BYTES = 64 << 20


def _attr_text(name: str, value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value if value in _WORDS and name != "unit" else json.dumps(value)
    if isinstance(value, (list, tuple)):
        if name == "over":
            return f"[{','.join(value)}]"
        return f"[{','.join(_attr_text(name, item) for item in value)}]"
    return repr(value)


class NewValue:
    """The result of a node that an edit inserts.

    >>> from heddle.passes import NewValue
    >>> NewValue("y").name
    'y'
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<heddle.passes.NewValue %{self.name}>"


class Edit:
    """One batch of edits to a graph, which is applied when the pass returns.

    The graph does not change meanwhile: `replace`, `erase` and the others note what to do.

    >>> from heddle.passes import Edit
    >>> graph = heddle.Graph.parse('''heddle 1 local
    ... graph @g(%x: f32[4,6]) -> (%b) {
    ...   %a = aten.t(%x)
    ...   %b = aten.relu(%a)
    ... }''')
    >>> edit = Edit(graph)
    >>> a, b = graph.nodes
    >>> first = edit.insert_before(a, "aten.relu", graph.inputs[0])
    >>> last = edit.insert_after(a, "aten.t", first)
    >>> edit.replace(b.result, last)
    >>> edit.erase(b)
    >>> [(node.op, node.operand(0).name) for node in edit.apply().nodes]
    [('aten.relu', 'x'), ('aten.t', 'x'), ('aten.t', 'relu')]
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._names = {value.name for value in graph.inputs}
        # The nodes in order, as (node, text): new nodes have a text, phase and no node.
        self._order: list[_Line] = []
        self._line_of: dict[int, _Line] = {}
        for node in graph.nodes:
            line = _Line(str(node), node.phase)
            self._order.append(line)
            self._line_of[node.index] = line
            self._names.update(value.name for value in node.results)
        self._replaced: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._remarks: list[str] = []
        self._changed = False

    # --- New nodes

    def insert_before(
        self, node: Node, op: str, *operands: Any, name: str = "", **attrs: Any
    ) -> NewValue:
        """A call of an op with one result, before a node, whose scope and phase it gets."""
        return self._insert(node, 0, op, operands, name, attrs)

    def insert_after(
        self, node: Node, op: str, *operands: Any, name: str = "", **attrs: Any
    ) -> NewValue:
        """The same after a node."""
        return self._insert(node, 1, op, operands, name, attrs)

    def _insert(
        self,
        node: Node,
        offset: int,
        op: str,
        operands: Sequence[Any],
        name: str,
        attrs: Mapping[str, Any],
    ) -> NewValue:
        base = name or (op.split(".")[1] if "." in op else op).strip("_")
        name, number = base, 0
        while name in self._names:
            number += 1
            name = f"{base}_{number}"
        self._names.add(name)
        arguments = [self._operand_text(operand) for operand in operands]
        arguments += [f"{key}={_attr_text(key, value)}" for key, value in attrs.items()]
        scope = f" @{node.scope}" if node.scope else ""
        line = _Line(f"%{name} = {op}({', '.join(arguments)}){scope}", node.phase)
        line.is_new = True
        self._order.insert(self._position(node) + offset, line)
        self._changed = True
        return NewValue(name)

    def _operand_text(self, operand: Any) -> str:
        if operand is None:
            return "none"
        if isinstance(operand, (list, tuple)):
            return f"[{', '.join(self._operand_text(one) for one in operand)}]"
        return f"%{self._name_of(operand)}"

    @staticmethod
    def _name_of(value: Any) -> str:
        if isinstance(value, Node):
            value = value.result
        if not isinstance(value, (Value, NewValue)):
            raise _mistake(f"an operand is a {type(value).__name__}, expected a value of a graph")
        return value.name

    # --- Changes

    def replace(self, value: Value, by: Value | NewValue) -> None:
        """All uses of a value, outputs included, become uses of another."""
        self._replaced[self._name_of(value)] = self._name_of(by)
        self._changed = True

    def erase(self, node: Node) -> None:
        """Removes a node. Nothing may read its results, after replacements."""
        self._order.remove(self._line(node))
        self._changed = True

    def move_before(self, node: Node, other: Node) -> None:
        """Moves a node in the schedule."""
        line = self._line(node)
        self._order.remove(line)
        self._order.insert(self._position(other), line)
        self._changed = True

    def set_attrs(self, node: Node, **attrs: Any) -> None:
        """Sets attributes; None stands for `none`."""
        line = self._line(node)
        for name, value in attrs.items():
            line.text = _with_attr(line.text, name, _attr_text(name, value))
        line.forget_types()
        self._changed = True

    def set_keep(self, value: Value, keep: str) -> None:
        """Decides about a value for backward: `must_save`, `must_recompute`, ..."""
        producer = value.producer
        if producer is None:
            raise _mistake(f"%{value.name} is an input, which is always kept")
        line = self._line(producer)
        keeps = [keep if one == value else one.keep or "default" for one in producer.results]
        text = line.text.split(" keep=")[0]
        shown = keeps[0] if len(keeps) == 1 else f"[{','.join(keeps)}]"
        line.text = f"{text} keep={shown}"
        self._changed = True

    # --- Reports

    def count(self, stat: str, number: int = 1) -> None:
        """Adds to a statistic of the pass: `Program.passes` shows it."""
        self._counts[stat] = self._counts.get(stat, 0) + number

    def remark(self, text: str, value: Value | None = None) -> None:
        """Reports an opportunity that the pass declined."""
        place = f" %{value.name}" if value is not None else ""
        self._remarks.append(f"@{self._graph.name}{place}: {text}")

    # --- Result

    def apply(self) -> Graph:
        """The graph after the edits."""
        if not self._changed:
            return self._graph
        try:
            return Graph.parse(self._text(), "edited graph")
        except Error as error:
            raise PassError(str(error), error.diagnostics) from None

    def _text(self) -> str:
        before = str(self._graph)
        lines = before.splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith("graph @"))
        head = lines[:at]
        regions = [line for line in lines if line.startswith(" region ")]
        inputs = ", ".join(str(value) for value in self._graph.inputs)
        outputs = ", ".join(self._output_text(output) for output in self._graph.outputs)
        body, phase = [], "fwd"
        for line in self._order:
            if line.phase != phase:
                body.append(f" {line.phase}:")
                phase = line.phase
            body.append(f"  {self._renamed(line.text)}")
        signature = f"graph @{self._graph.name}({inputs}) -> ({outputs}) {{"
        return "\n".join([*head, signature, *regions, *body, "}", ""])

    def _output_text(self, output: Any) -> str:
        name = output.value.name
        before, _, after = str(output).rpartition(f"%{name}")
        return f"{before}%{self._resolved(name)}{after}"

    def _resolved(self, name: str) -> str:
        seen = {name}
        while name in self._replaced:
            name = self._replaced[name]
            if name in seen:
                raise _mistake(f"%{name} is replaced by itself")
            seen.add(name)
        return name

    def _renamed(self, text: str) -> str:
        results, equals, call = text.partition(" = ")

        def rename(found: re.Match[str]) -> str:
            return found[0] if found[1] is None else f"%{self._resolved(found[1])}"

        return f"{results}{equals}{_NAMES.sub(rename, call)}"

    def _line(self, node: Node) -> _Line:
        line = self._line_of.get(node.index)
        if line is None or line not in self._order:
            raise _mistake(f"node {node.index} is no longer in the graph")
        return line

    def _position(self, node: Node) -> int:
        return self._order.index(self._line(node))


class _Line:
    """A node as text."""

    __hash__ = object.__hash__

    def __init__(self, text: str, phase: str) -> None:
        # Printed nodes are aligned; one space is enough.
        self.text = text
        self.phase = phase
        self.is_new = False

    def forget_types(self) -> None:
        """Results of ops of the table have the types that the shape rule gives."""
        call, colon, rest = self.text.rpartition(" : ")
        if not colon:
            return
        kept = re.search(r"( @\S+)?( stream=\d+)?( keep=\S+)?\s*$", rest)
        self.text = call.rstrip() + (kept[0] if kept else "")


def _with_attr(text: str, name: str, value: str) -> str:
    """A printed node with another value of an attribute."""
    begin = text.index("(", text.index(" = "))
    depth, quoted, commas, end = 0, False, [begin], begin
    for at in range(begin, len(text)):
        one = text[at]
        if one == '"' and text[at - 1] != "\\":
            quoted = not quoted
        if quoted:
            continue
        depth += (one in "([") - (one in ")]")
        if one == "," and depth == 1:
            commas.append(at)
        if depth == 0:
            end = at
            break
    bounds = zip(commas, [*commas[1:], end], strict=True)
    parts = [text[a + 1 : b].strip() for a, b in bounds]
    parts = [part for part in parts if part and not part.startswith(f"{name}=")]
    return f"{text[: begin + 1]}{', '.join([*parts, f'{name}={value}'])}{text[end:]}"


def _mistake(message: str) -> PassError:
    return PassError("", [Diagnostic("edit", message)])


def _is_small(graph: Graph) -> bool:
    """Whether the values of all ranks are small enough for a run in about a second."""
    values = [*graph.inputs, *(value for node in graph.nodes for value in node.results)]
    ranks = math.prod(graph.mesh.values())
    return bool(ranks * sum(value.nbytes for value in values) <= _MOST_BYTES)


def _check_bits(name: str, before: Graph, after: Graph) -> None:
    """Runs a pass's graphs on random inputs, and raises if their bits differ."""
    try:
        import_module("._torch", __package__)
        from .testing import assert_same_bits

        assert_same_bits(before, after)
    except (ImportError, RunError):
        # Without the runtime, or for a graph that random inputs do not fit, nothing is compared.
        return
    except AssertionError as error:
        message = f"pass `{name}` is declared exact, and bits differ: {error}"
        hint = 'declare numerics="regrouping" or "rounding" if that is meant'
        raise PassError("", [Diagnostic("pass-numerics", message, hint=hint)]) from None


class GraphPass:
    """A pass: call it with a graph, or put it into the `pipeline` of a program.

    >>> from heddle.passes import GraphPass
    >>> @heddle.graph_pass
    ... def nothing(graph, edit):
    ...     '''Changes nothing.'''
    >>> isinstance(nothing, GraphPass), nothing.name, nothing.numerics
    (True, 'nothing', 'exact')
    """

    def __init__(
        self, function: Callable[[Graph, Edit], None], *, name: str = "", numerics: str = "exact"
    ) -> None:
        if numerics not in _NUMERICS:
            raise _mistake(f"numerics is {numerics!r}, expected one of {', '.join(_NUMERICS)}")
        self._function = function
        self.name = name or getattr(function, "__name__", "pass").replace("_", "-")
        self.numerics = numerics
        self.__doc__ = function.__doc__
        self.counts: dict[str, int] = {}
        self.remarks: list[str] = []

    def _edited(self, graph: Graph) -> Graph:
        edit = Edit(graph)
        self._function(graph, edit)
        self.counts, self.remarks = dict(edit._counts), list(edit._remarks)
        return edit.apply()

    def _run(self, graph: Graph, cluster: str) -> Graph:
        return _core.run_python_pass(graph, self.name, self.numerics, self._edited, cluster)

    def __call__(self, graph: Graph, *, cluster: str = "h100-8x") -> Graph:
        """Runs the pass: the manager verifies the result and what it must preserve.

        If the pass is exact, the graph is local and small, and `heddle._torch` is installed, the
        graph runs on random inputs before and after. Bits that differ raise a `PassError`.
        """
        after = self._run(graph, cluster)
        if self.numerics == "exact" and graph.view == "local" and _is_small(graph):
            _check_bits(self.name, graph, after)
        return after

    def __repr__(self) -> str:
        return f"<heddle.passes.GraphPass {self.name}, {self.numerics}>"


@overload
def graph_pass(function: Callable[[Graph, Edit], None]) -> GraphPass: ...
@overload
def graph_pass(
    *, numerics: str = "exact", name: str = ""
) -> Callable[[Callable[[Graph, Edit], None]], GraphPass]: ...
def graph_pass(
    function: Callable[[Graph, Edit], None] | None = None,
    *,
    numerics: str = "exact",
    name: str = "",
) -> Any:
    """Makes a pass of a function of a graph and its `Edit`.

    `numerics`: what the pass may do to bits: `exact` (nothing), `regrouping` (sums) or `rounding`.

    >>> @heddle.graph_pass(numerics="exact")
    ... def transpose_twice(graph, edit):
    ...     '''aten.t of aten.t is what it was.'''
    ...     for node in graph.nodes:
    ...         inner = node.operand(0).producer if node.op == "aten.t" else None
    ...         if inner is not None and inner.op == "aten.t":
    ...             edit.replace(node.result, inner.operand(0))
    ...             edit.count("removed")
    >>> graph = heddle.Graph.parse('''heddle 1 local
    ... graph @g(%x: f32[4,6]) -> (%c) {
    ...   %a = aten.t(%x)
    ...   %b = aten.t(%a)
    ...   %c = aten.relu(%b)
    ... }''')
    >>> after = heddle.run_pipeline(transpose_twice(graph), "dce")
    >>> [node.op for node in after.nodes], transpose_twice.counts
    (['aten.relu'], {'removed': 1})
    """
    if function is not None:
        return GraphPass(function)
    return lambda given: GraphPass(given, numerics=numerics, name=name)
