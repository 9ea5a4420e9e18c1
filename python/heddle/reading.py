"""Graphs of other programs, from files and from memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from . import _core
from ._core import Graph
from .errors import CaptureError, Diagnostic

__all__ = ["from_fx", "read"]


def read(
    path: str | os.PathLike[str],
    *,
    mesh: str = "",
    groups: Mapping[str, str] | None = None,
    hint: int = 512,
    global_: bool = False,
    params: Sequence[str] = (),
) -> Graph:
    """Reads a graph that PyTorch printed, dumped or exported: what `heddle import` reads.

    The keywords are the flags of `heddle import` (docs/import.md). `Graph.remarks` has what was
    assumed or lost.

    >>> import pathlib, tempfile
    >>> text = '''
    ... class GraphModule(torch.nn.Module):
    ...     def forward(self, x: "f32[4, 4]", y: "f32[4, 4]"):
    ...         mm: "f32[4, 4]" = torch.ops.aten.mm.default(x, y);  x = y = None
    ...         return (mm,)
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "fx.py")
    ...     written = path.write_text(text)
    ...     graph = heddle.read(path)
    >>> [(node.op, node.result.name) for node in graph.nodes]
    [('aten.mm', 'mm')]
    """
    return _core.read_file(
        os.fspath(path), mesh, list((groups or {}).items()), hint, global_, list(params)
    )


def from_fx(
    graph_module: Any,
    inputs: Sequence[Mapping[str, Any]] | None = None,
    outputs: Sequence[Mapping[str, Any]] | None = None,
) -> Graph:
    """Reads a `torch.fx.GraphModule` of ATen calls from memory, as `make_fx` traces them.

    A module that `Program.to_fx` wrote needs no roles: it states them, and all else that ATen's
    names do not say. The result is the graph with packed collectives.

    `inputs` has a dictionary for each placeholder: `role` (`param`, `buffer`, `batch`, `opt`,
    `hyper`), `label`, and where they apply `index` and `unit`. `outputs` has one for each output:
    `role` (`loss`, `grad`, `update`, `metric`), `label`, and where they apply `index` or `input`.
    `Graph.remarks` has what was assumed or lost.

    >>> import torch
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> def step(w, x):
    ...     return [(x @ w).sum()]
    >>> traced = make_fx(step, tracing_mode="fake")(torch.ones(4, 2), torch.ones(3, 4))
    >>> graph = heddle.from_fx(
    ...     traced,
    ...     [dict(role="param", label="w", unit="w"), dict(role="batch", label="x")],
    ...     [dict(role="loss")],
    ... )
    >>> graph.inputs[0].label, graph.view
    ('w', 'global')
    """
    if inputs is None or outputs is None:
        if "heddle" not in getattr(graph_module, "meta", {}):
            message = "the module has no roles of inputs and outputs; `Program.to_fx` writes them"
            hint = "give `inputs` and `outputs`"
            raise CaptureError("", [Diagnostic("fx-roles", message, hint=hint)])
        from ._from_fx import read_fx_text

        return read_fx_text(graph_module)
    return _core.read_fx(
        graph_module, [dict(one) for one in inputs], [dict(one) for one in outputs]
    )
