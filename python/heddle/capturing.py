"""Capture: one training step of any `nn.Module` as one graph."""

from __future__ import annotations

import contextlib
import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from . import hf
from ._captured import CapturedStep, Parameter, assemble, with_flat_results
from ._explain import explain, written_by
from ._functional import Functional, functionalize, mark
from ._inverses import sort_inverses
from ._leaves import Spec, flatten_batch, state_of
from ._losses import sum_means
from ._source import Source, own_loss
from ._torch_names import OpOverload, cpu_grouped_products
from ._trace import Leaf, Traced, fail, trace
from .errors import CaptureError, Diagnostic
from .optim import AdamW
from .rules import Rules, module_list_rules

if TYPE_CHECKING:
    from .step import Step

__all__ = ["AdamW", "CapturedStep", "Parameter", "Spec", "capture", "trace_step"]

TARGETS = ("cpu", "cuda")


def _check_writes(
    model_leaves: Sequence[Leaf], functional: Functional, again: Callable[[], Traced]
) -> list[str]:
    """Raises for a write to a parameter. Writes to the batch stay inside the step: remarks."""
    remarks = []
    for index in functional.written:
        leaf = model_leaves[index]
        if leaf.role == "param":
            op, file, line, source = written_by(again().graph_module, index)
            message = f"the step writes to parameter `{leaf.label}` in place: {op}"
            hint = "write to a buffer, or change parameters between steps"
            place = Diagnostic("capture-write", message, file, line, 0, source, hint)
            raise CaptureError("", [place])
        if leaf.role == "batch":
            remarks.append(f"the step writes to `{leaf.label}` of its batch; callers do not see it")
    return remarks


def _check_unused(unused: Sequence[str], allowed: bool) -> list[str]:
    if not unused:
        return []
    shown = ", ".join(f"`{name}`" for name in unused[:3])
    more = f" and {len(unused) - 3} more" if len(unused) > 3 else ""
    if not allowed:
        raise fail(
            "unused",
            f"the loss does not depend on {shown}{more}",
            "freeze them with `requires_grad_(False)`, or give `allow_unused=True`",
        )
    return [f"no gradient for {shown}{more}: the loss does not depend on them"]


def _remarks(functional: Functional) -> list[str]:
    opaque: dict[str, int] = {}
    random: dict[str, int] = {}
    for node in functional.graph_module.graph.nodes:
        target = node.target
        if node.op != "call_function" or getattr(target, "__name__", "") == "getitem":
            continue
        if not isinstance(target, OpOverload):
            raise fail("opaque", f"{_name_of(node)} calls {target}, which is not an op of ATen")
        name = str(target).removesuffix(".default")
        if target.namespace not in ("aten", "prims", "heddle"):
            opaque[name] = opaque.get(name, 0) + 1
        if torch.Tag.nondeterministic_seeded in target.tags and _draws(node):
            random[name] = random.get(name, 0) + 1
    found = [f"{op} is opaque to plans ({_times(count)})" for op, count in opaque.items()]
    held = sum(value.dim() > 0 for value in functional.constants)
    if held:
        tensors = "a tensor" if held == 1 else f"{held} tensors"
        what = "of neither model nor batch, with the values of the capture"
        found.append(f"the step holds {tensors} {what}")
    found += [
        f"{op} draws random numbers ({_times(count)}); ranks draw other ones than one device"
        for op, count in random.items()
    ]
    return found


def _draws(node: Any) -> bool:
    """Attention has a random tag, and draws only with dropout."""
    names = [argument.name for argument in node.target._schema.arguments]
    if "dropout_p" not in names:
        return True
    index = names.index("dropout_p")
    given = node.args[index] if index < len(node.args) else node.kwargs.get("dropout_p", 0.0)
    return bool(given != 0.0)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _name_of(node: Any) -> str:
    scope = node.meta.get("heddle_scope", "")
    return f"`{scope}`" if scope else "the model"


def _placed(error: CaptureError, function: Callable[..., Any]) -> CaptureError:
    """The mistake with the line of the function that computes the loss, if it has no line."""
    code = getattr(function, "__code__", None)
    found = error.diagnostics[0]
    if code is None or found.file is not None or found.kind != "capture-loss":
        return error
    file, line = code.co_filename, code.co_firstlineno
    source = linecache.getline(file, line).strip()
    return CaptureError("", [replace(found, file=file, line=line, source=source)])


def _check_arguments(model: Any, target: str, optimizer: Any, param_dtype: Any) -> None:
    if not isinstance(model, nn.Module):
        raise fail("model", f"the model is a {type(model).__name__}, expected an nn.Module")
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            message = f"{f'`{name}`' if name else 'the model'} is a {type(module).__name__}"
            raise fail("model", message, "capture the module that it was scripted from")
    if target not in TARGETS:
        raise fail("target", f"target {target!r} is unknown", f"use one of {', '.join(TARGETS)}")
    if optimizer is not None and not isinstance(optimizer, AdamW):
        raise fail(
            "optimizer",
            f"the optimizer is a {type(optimizer).__name__}, expected heddle.AdamW",
            "leave it out to use any optimizer of torch on the gradients",
        )
    if param_dtype is not None and not (
        isinstance(param_dtype, torch.dtype) and param_dtype.is_floating_point
    ):
        raise fail("dtype", f"param_dtype is {param_dtype}, expected a floating-point torch.dtype")


def rules_of(model: nn.Module) -> Rules:
    """The rules that a model brings: of transformers' tables, else units from `ModuleList`s."""
    return hf.rules(model).fill(module_list_rules(model))


def trace_step(
    model: nn.Module,
    batch: Any,
    *,
    loss: Callable[..., Any] | None = None,
    optimizer: AdamW | None = None,
    param_dtype: torch.dtype | None = None,
    target: str = "cpu",
    kwargs: Mapping[str, Any] | None = None,
    allow_unused: bool = False,
    stack_traces: bool = False,
) -> CapturedStep:
    """The step as a `torch.fx.GraphModule`; see `capture`, which makes a graph of Heddle of it.

    `stack_traces`: nodes have `stack_trace` in their `meta`, which takes as long again.

    >>> import torch
    >>> from heddle.capturing import Spec, trace_step
    >>> captured = trace_step(torch.nn.Linear(4, 1), Spec((1, 4)))
    >>> weight, bias, x = torch.ones(1, 4), torch.ones(1), torch.ones(1, 4)
    >>> [value.tolist() for value in captured.graph_module(weight, bias, x)]
    [5.0, [[1.0, 1.0, 1.0, 1.0]], [1.0]]
    """
    _check_arguments(model, target, optimizer, param_dtype)
    state, positions = state_of(model)
    flat = flatten_batch(batch)
    leaves = state + flat.leaves
    if not any(leaf.trained for leaf in leaves):
        raise fail("unused", "the model has no trained parameter")
    options = dict(kwargs or {})

    def compute(tensors: Sequence[Any]) -> Any:
        given = flat.rebuild(tensors)
        if loss is None:
            return own_loss(model, given, options)
        return loss(model, given, **options)

    names: dict[int, str] = {}
    for name, module in model.named_modules():
        names.setdefault(id(module), name)

    kernels = cpu_grouped_products if target == "cpu" else contextlib.nullcontext

    def run(stack_traces: bool = False) -> Traced:
        with contextlib.ExitStack() as stack:
            stack.enter_context(kernels())
            stack.enter_context(torch.random.fork_rng(devices=[]))
            stack.enter_context(hf.tracing(model))
            return trace(
                model,
                leaves,
                positions,
                compute,
                param_dtype=param_dtype,
                target=target,
                stack_traces=stack_traces,
            )

    try:
        traced = run(stack_traces)
        remarks = _check_unused(traced.unused, allow_unused)
        sum_means(traced.graph_module)
        with kernels():
            functional = functionalize(traced.graph_module)
        sort_inverses(functional.graph_module)
    except CaptureError as error:
        raise _placed(error, model.forward if loss is None else loss) from None
    except Exception as error:
        raise explain(error, names, lambda module, text: hf.hint(model, module, text)) from error
    remarks += _check_writes(leaves, functional, lambda: run(stack_traces=True))
    mark(functional.graph_module.graph.nodes)
    remarks += _remarks(functional)
    return assemble(
        leaves,
        traced,
        functional,
        optimizer=optimizer,
        rules=rules_of(model),
        target=target,
        remarks=remarks,
    )


def capture(
    model: nn.Module,
    batch: Any,
    *,
    loss: Callable[..., Any] | None = None,
    optimizer: AdamW | None = None,
    param_dtype: torch.dtype | None = None,
    target: str = "cpu",
    kwargs: Mapping[str, Any] | None = None,
    allow_unused: bool = False,
) -> Step:
    """The training step of a model as one graph: forward, backward and, if asked, the optimizer.

    - `batch`: a whole batch, in any container. A `Spec` in place of a tensor has no data.
    - `loss`: a function of model and batch. Without it the model is called with the batch, and its
      output is the loss or has an attribute `loss`.
    - `optimizer`: clipping and AdamW in the graph.
    - `param_dtype`: the type that parameters are cast to where the step uses them.
    - `target`: `"cuda"` captures the kernels that a GPU would run; no GPU is needed.
    - `kwargs`: further arguments of the model, or of `loss`.
    - `allow_unused`: accept parameters that the loss does not depend on; they get no gradient.

    The model may be on `meta`. It is not changed, whether capture succeeds or raises
    `CaptureError`.

    >>> import torch
    >>> from heddle.capturing import Spec, capture
    >>> def step():
    ...     return capture(torch.nn.Linear(4, 1), Spec((1, 4)), optimizer="adamw")
    >>> from heddle.errors import CaptureError
    >>> try:
    ...     step()
    ... except CaptureError as error:
    ...     print(error.diagnostics[0].message)
    the optimizer is a str, expected heddle.AdamW
    """
    captured = trace_step(
        model,
        batch,
        loss=loss,
        optimizer=optimizer,
        param_dtype=param_dtype,
        target=target,
        kwargs=kwargs,
        allow_unused=allow_unused,
    )
    from . import _core
    from .step import Step

    graph_module = captured.graph_module
    if optimizer is not None:
        graph_module = with_flat_results(graph_module)
    graph = _core.read_fx(graph_module, captured.inputs, captured.outputs, None)
    remarks = [*captured.remarks, *graph.remarks]
    return Step(
        graph,
        parameters=captured.parameters,
        remarks=remarks,
        rules=rules_of(model),
        constants=captured.constants,
        hyper={} if optimizer is None else {"lr": optimizer.lr},
        source=Source(model, loss, param_dtype, kwargs),
    )
