"""What went wrong while a model was traced: the module, the op, the line, and what to do."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import torch
from torch import fx, nn

from ._functional import is_same
from ._torch_names import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    OpOverload,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from .errors import CaptureError, Diagnostic

__all__ = ["Line", "explain", "lines_of", "written_by"]

_OURS = os.path.dirname(os.path.abspath(__file__))
_TORCH = os.path.dirname(os.path.abspath(torch.__file__))

_NO_DATA = "sizes and branches that depend on data have no plan; compute on tensors, as torch.where"

Hint = Callable[[str | None, str], str]
# File, number and text of a line.
Line = tuple[str, int, str]


def _is_user_file(path: str) -> bool:
    if path.startswith(("<", _OURS, _TORCH)):
        return False
    return os.path.basename(path) not in ("contextlib.py", "functools.py")


class _Place:
    """The innermost module and the innermost line of the user's files on a traceback."""

    def __init__(self, traceback: TracebackType | None, names: Mapping[int, str]) -> None:
        self.module: str | None = None
        self.file: str | None = None
        self.line = 0
        while traceback is not None:
            code, scope = traceback.tb_frame.f_code, traceback.tb_frame.f_locals
            owner = scope.get("self")
            if isinstance(owner, nn.Module) and id(owner) in names:
                self.module = names[id(owner)]
            if _is_user_file(code.co_filename):
                self.file, self.line = code.co_filename, traceback.tb_lineno
            traceback = traceback.tb_next

    @property
    def source(self) -> str:
        return linecache.getline(self.file, self.line).strip() if self.file else ""


def _subject(module: str | None) -> str:
    if module is None:
        return "the loss"
    return f"`{module}`" if module else "the model"


def _op(function: Any) -> str:
    return str(function).removesuffix(".default")


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _what(error: Exception, subject: str) -> tuple[str, str, str]:
    """Kind, message and hint."""
    text = str(error)
    if isinstance(error, DataDependentOutputException) or "value out of a tracing" in text:
        op = _op(getattr(error, "func", "aten._local_scalar_dense"))
        return "capture-data", f"{subject} reads a number from a tensor: {op}", _NO_DATA
    if isinstance(error, DynamicOutputShapeException):
        op = _op(error.func)
        message = f"{subject} makes a tensor whose size depends on data: {op}"
        return "capture-data", message, _NO_DATA
    if isinstance(error, (UnsupportedOperatorException, UnsupportedFakeTensorException)):
        op = _op(getattr(error, "func", "an op"))
        hint = "register a kernel without data for it: torch.library.register_fake"
        return "capture-opaque", f"{subject} calls {op}, which cannot be traced", hint
    if "fake impl" in text or "register_fake" in text:
        hint = "register a kernel without data for it: torch.library.register_fake"
        return "capture-opaque", f"{subject} calls an op that cannot be traced: {text}", hint
    if "backward through the graph a second time" in text:
        hint = "return the loss without calling `backward`; the step has the gradients"
        return "capture-loss", f"{subject} runs backward itself", hint
    if "device" in text and ("Unhandled FakeTensor Device" in text or "same device" in text):
        hint = "make tensors on the device of an input, as `torch.zeros(..., device=x.device)`"
        return "capture-device", f"{subject} mixes devices: {_first_line(error)}", hint
    if "dynamo" in text.lower() and "trace" in text:
        hint = "capture the model without torch.compile; compile the captured step instead"
        return "capture-compile", f"{subject} calls a compiled function", hint
    return "capture-model", f"{subject} fails while it is traced: {_first_line(error)}", ""


def explain(error: Exception, names: Mapping[int, str], hint_of: Hint) -> CaptureError:
    """The same mistake with its place in the user's model."""
    place = _Place(error.__traceback__, names)
    kind, message, hint = _what(error, _subject(place.module))
    diagnostic = Diagnostic(
        kind,
        message,
        place.file,
        place.line,
        source=place.source,
        hint=hint_of(place.module, message) or hint,
    )
    return CaptureError("", [diagnostic])


_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


def written_by(graph_module: fx.GraphModule, index: int) -> tuple[str, str | None, int, str]:
    """The op that writes to a placeholder, and its line in the user's file.

    The graph was traced with stack traces.
    """
    nodes = list(graph_module.graph.nodes)
    aliases = {[node for node in nodes if node.op == "placeholder"][index]}
    for node in nodes:
        target = node.target
        if not isinstance(target, OpOverload):
            continue
        operand = node.args[0] if node.args else None
        if operand not in aliases:
            continue
        if target._schema.is_mutable:
            file, line, source = _line_of(node) or (None, 0, "")
            return _op(target), file, line, source
        if is_same(node) or target.is_view:
            aliases.add(node)
    return "an op", None, 0, ""


def lines_of(graph_module: fx.GraphModule) -> dict[str, Line]:
    """The line of the user's files that each node is from, by the node's name.

    A backward node is from the line of the forward op whose gradient it computes. The graph was
    traced with stack traces.
    """
    lines: dict[str, Line] = {}
    forward: dict[Any, Line] = {}
    for node in graph_module.graph.nodes:
        line = _line_of(node)
        if line is not None:
            forward.setdefault(node.meta.get("seq_nr"), line)
        else:
            line = forward.get((node.meta.get("custom") or {}).get("heddle_of"))
        if line is not None:
            lines[node.name] = line
    return lines


def _line_of(node: fx.Node) -> Line | None:
    frames = _FRAME.finditer(node.meta.get("stack_trace") or "")
    users = [(m["file"], int(m["line"])) for m in frames if _is_user_file(m["file"])]
    if not users:
        return None
    return *users[-1], linecache.getline(*users[-1]).strip()
