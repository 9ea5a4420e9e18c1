"""The step of a model as an FX graph, traced once on fake tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn

from ._cuda import CudaKernels
from ._lend import ParameterCast, lend
from ._torch_names import (
    FakeTensorMode,
    annotate,
    enable_python_dispatcher,
    make_fx,
    nested_compile,
    preserve_node_meta,
    pytree,
    track_backward,
)
from .errors import CaptureError, Diagnostic

__all__ = ["Leaf", "Traced", "fail", "trace"]


@dataclass(frozen=True)
class Leaf:
    """One tensor that the step takes: a parameter, a buffer, or a part of the batch."""

    role: str
    label: str
    tensor: Tensor
    tied: tuple[str, ...] = ()

    @property
    def trained(self) -> bool:
        return self.role == "param" and self.tensor.requires_grad


@dataclass
class Traced:
    """A graph with placeholders in the order of the leaves, and outputs in the order below."""

    graph_module: fx.GraphModule
    # Labels of parameters with a gradient.
    gradients: list[str] = field(default_factory=list)
    # Trained parameters without one.
    unused: list[str] = field(default_factory=list)
    # Buffers whose tensor the step replaced, rather than wrote to.
    replaced: list[str] = field(default_factory=list)


def fail(kind: str, message: str, hint: str = "") -> CaptureError:
    return CaptureError("", [Diagnostic(f"capture-{kind}", message, hint=hint)])


def _check_loss(loss: Any) -> Tensor:
    if not isinstance(loss, Tensor):
        name = type(loss).__name__
        raise fail(
            "loss",
            f"the loss is of type {name}, expected a tensor with one number",
            "give `loss=`, a function of model and batch that returns the loss",
        )
    if loss.numel() != 1:
        raise fail(
            "loss",
            f"the loss has the shape {list(loss.shape)}, expected one number",
            "reduce it, for example with `.mean()`",
        )
    if not loss.is_floating_point():
        raise fail("loss", f"the loss has the type {loss.dtype}, expected a floating-point type")
    if not loss.requires_grad:
        raise fail(
            "loss",
            "the loss depends on no trained parameter",
            "look for `.detach()`, `torch.no_grad()` or `requires_grad_(False)`",
        )
    return loss


@contextlib.contextmanager
def _autocast_cache() -> Iterator[None]:
    """As in eager, `torch.autocast` casts a weight once, however often the step uses it."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(True)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


class _Step:
    def __init__(
        self,
        model: nn.Module,
        leaves: Sequence[Leaf],
        by_id: Mapping[int, int],
        loss: Callable[[Sequence[Any]], Any],
        param_dtype: torch.dtype | None,
    ) -> None:
        self.model = model
        self.leaves = leaves
        self.by_id = by_id
        self.loss = loss
        self.param_dtype = param_dtype
        self.gradients: list[str] = []
        self.unused: list[str] = []
        self.replaced: list[str] = []
        self.names: dict[int, str] = {}
        for name, module in model.named_modules():
            self.names.setdefault(id(module), name)

    def __call__(self, *fakes: Tensor) -> list[Tensor]:
        self.gradients, self.unused, self.replaced = [], [], []
        held = {key: fakes[index] for key, index in self.by_id.items()}
        storages = [fake.untyped_storage() for fake in fakes]
        batch = fakes[sum(leaf.role != "batch" for leaf in self.leaves) :]
        trained = [i for i, leaf in enumerate(self.leaves) if leaf.trained]
        with lend(self.model, held, ParameterCast(self.param_dtype), self.names):
            scope = {"heddle_scope": "loss", "heddle_phase": "fwd"}
            with self._cast_inputs(), _autocast_cache(), annotate(scope):
                loss = _check_loss(self.loss(batch))
            if loss.dim() > 0:
                loss = loss.reshape(())
            track_backward(loss)
            # Nodes of the engine have no scope of their own here; recomputed ones do.
            with annotate({"heddle_phase": "bwd"}):
                grads = torch.autograd.grad(loss, [fakes[i] for i in trained], allow_unused=True)
            changed = self._replaced(fakes)
        self._check_data(fakes, storages)
        results: list[Tensor] = [loss]
        for index, grad in zip(trained, grads, strict=True):
            if grad is None:
                self.unused.append(self.leaves[index].label)
            else:
                self._check_layout(self.leaves[index], grad)
                self.gradients.append(self.leaves[index].label)
                results.append(grad)
        return results + changed

    def _check_data(self, fakes: Sequence[Tensor], storages: Sequence[Any]) -> None:
        """Raises if a tensor got other data: no op of the graph shows that."""
        for leaf, fake, before in zip(self.leaves, fakes, storages, strict=True):
            if fake.untyped_storage()._cdata != before._cdata:
                raise fail(
                    "write",
                    f"the step sets `.data` of `{leaf.label}`",
                    "write to a buffer, or change parameters between steps",
                )

    def _check_layout(self, leaf: Leaf, grad: Tensor) -> None:
        if grad.layout != torch.strided:
            layout = str(grad.layout).removeprefix("torch.")
            message = f"the gradient of `{leaf.label}` has the layout {layout}, expected strided"
            raise fail("layout", message, "for embeddings: `sparse=False`")

    def _replaced(self, fakes: Sequence[Tensor]) -> list[Tensor]:
        changed = []
        now = dict(self.model.named_buffers())
        for leaf, fake in zip(self.leaves, fakes, strict=True):
            value = now.get(leaf.label)
            if leaf.role != "buffer" or value is None or value is fake:
                continue
            if value.shape != fake.shape or value.dtype != fake.dtype:
                raise fail(
                    "buffer",
                    f"the step replaces buffer `{leaf.label}`, {list(fake.shape)} of {fake.dtype},"
                    f" by {list(value.shape)} of {value.dtype}",
                    "a step is captured once; its buffers must keep shape and type",
                )
            self.replaced.append(leaf.label)
            changed.append(value)
        return changed

    @contextlib.contextmanager
    def _cast_inputs(self) -> Iterator[None]:
        """Inputs of the model have `param_dtype`, as with FSDP2's mixed precision."""
        dtype = self.param_dtype
        if dtype is None:
            yield
            return

        def cast(value: Any) -> Any:
            if isinstance(value, Tensor) and value.is_floating_point():
                return value.to(dtype)
            return value

        def hook(module: nn.Module, args: Any, kwargs: Any) -> Any:
            return pytree.tree_map(cast, (args, kwargs))

        handle = self.model.register_forward_pre_hook(hook, prepend=True, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()


def fake_leaves(mode: FakeTensorMode, leaves: Sequence[Leaf]) -> list[Tensor]:
    """Fake tensors on the CPU. On `meta` autograd loses gradients; fake CUDA needs a GPU build.

    They are contiguous, as parts of ranks are.
    """
    with mode:
        return [
            torch.empty(leaf.tensor.shape, dtype=leaf.tensor.dtype, device="cpu").requires_grad_(
                leaf.trained
            )
            for leaf in leaves
        ]


@contextlib.contextmanager
def _without_mkldnn() -> Iterator[None]:
    """Its ops (`mkldnn_rnn_layer`) exist on some CPUs alone."""
    backend: Any = torch.backends.mkldnn
    before, backend.enabled = backend.enabled, False
    try:
        yield
    finally:
        backend.enabled = before


def trace(
    model: nn.Module,
    leaves: Sequence[Leaf],
    by_id: Mapping[int, int],
    loss: Callable[[Sequence[Any]], Any],
    *,
    param_dtype: torch.dtype | None,
    target: str,
    stack_traces: bool = False,
) -> Traced:
    """Traces forward and backward. `by_id` maps the model's tensors to leaves."""
    step = _Step(model, leaves, by_id, loss, param_dtype)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    # The caller may be in inference mode, whose tensors have no gradients.
    with torch.inference_mode(False):
        fakes = fake_leaves(mode, leaves)
    kernels = CudaKernels() if target == "cuda" else contextlib.nullcontext()
    with (
        mode,
        preserve_node_meta(),
        torch.autograd.set_multithreading_enabled(False),
        torch.inference_mode(False),
        torch.enable_grad(),
        enable_python_dispatcher(),
        nested_compile(),
        _without_mkldnn(),
        kernels,
    ):
        graph_module = make_fx(step, record_stack_traces=stack_traces)(*fakes)
    return Traced(graph_module, step.gradients, step.unused, step.replaced)
