"""The private names of torch that capture uses. No other file of the package uses any.

| name                                          | 2.11 | 2.12 | 2.13 | used for                   |
|-----------------------------------------------|------|------|------|----------------------------|
| `_subclasses.fake_tensor`                     | yes  | yes  | yes  | tensors without data       |
| `fx.traceback.annotate`, `preserve_node_meta` | yes  | yes  | yes  | scopes and phases of nodes |
| `fx.experimental.proxy_tensor.make_fx`        | yes  | yes  | yes  | the trace                  |
| `_dispatch.python.enable_python_dispatcher`   | yes  | yes  | yes  | `native_dropout` as one op |
| `fx.traceback.current_meta`, `_sequence_nr()` | yes  | yes  | yes  | scopes of backward         |
| `_dynamo.config.error_on_nested_fx_trace`     | yes  | yes  | yes  | compiled submodules        |
| `ops._c10d_functional`                        | yes  | yes  | yes  | collectives of FX graphs   |
| `distributed.tensor...._StridedShard`         | yes  | yes  | yes  | state as DTensors          |
| `_dynamo.backends.common.aot_autograd`        | yes  | yes  | yes  | graphs of torch.compile    |
| `_functorch.partitioners.default_partition`   | yes  | yes  | yes  | forward and backward       |
| `_ops.OpOverload`                             | yes  | yes  | yes  | what nodes call            |
| `utils._pytree`                               | yes  | yes  | yes  | tensors in containers      |
| `_meta_registrations._meta_grouped_mm_common` | yes  | yes  | yes  | grouped products in f32    |

A name that a later version lacks raises `ImportError` here, with the supported versions.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch

OLDEST = (2, 11)
NEWEST = (2, 13)

try:
    import torch.utils._pytree as pytree
    from torch._dispatch.python import enable_python_dispatcher
    from torch._ops import OpOverload
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        FakeTensorMode,
        UnsupportedFakeTensorException,
        UnsupportedOperatorException,
    )
    from torch.fx import traceback
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.traceback import annotate, preserve_node_meta
except ImportError as error:
    raise ImportError(
        f"heddle supports torch {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}, "
        f"this is {torch.__version__}: {error}"
    ) from error

__all__ = [
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensorMode",
    "OpOverload",
    "UnsupportedFakeTensorException",
    "UnsupportedOperatorException",
    "annotate",
    "aot_backend",
    "cpu_grouped_products",
    "default_partition",
    "enable_python_dispatcher",
    "functional",
    "make_fx",
    "nested_compile",
    "preserve_node_meta",
    "pytree",
    "strided_shard",
    "track_backward",
]

# Collectives that return new tensors.
functional: Any = torch.ops._c10d_functional


@contextlib.contextmanager
def cpu_grouped_products() -> Iterator[None]:
    """Lets `aten._grouped_mm` of fake tensors take what the CPU's kernel takes.

    Its meta kernel has the limits of GPUs: bf16, and strides of 16 bytes.
    """
    meta: Any = torch._meta_registrations
    before = meta._meta_grouped_mm_common

    def common(mat_a: torch.Tensor, mat_b: torch.Tensor, **options: Any) -> Any:
        if options.get("scale_a") is not None:
            return before(mat_a, mat_b, **options)
        make = meta._create_grouped_mm_output_tensor
        return make(mat_a, mat_b, options["offs"], options["out_dtype"])

    meta._meta_grouped_mm_common = common
    try:
        yield
    finally:
        meta._meta_grouped_mm_common = before


def aot_backend(**compilers: Any) -> Any:
    """A backend of torch.compile that compiles forward and backward apart."""
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(**compilers)


def default_partition(*args: Any, **options: Any) -> tuple[Any, Any]:
    """Divides a joint graph into forward and backward by the marks of `torch.utils.checkpoint`."""
    from torch._functorch.partitioners import default_partition as partition

    return partition(*args, **options)


def strided_shard(dim: int, *, split_factor: int) -> Any:
    """The placement of a dimension that later axes of the mesh have cut already."""
    from torch.distributed.tensor.placement_types import _StridedShard

    return _StridedShard(dim, split_factor=split_factor)


def track_backward(loss: torch.Tensor) -> None:
    """Annotates nodes of the backward pass from `loss` with `heddle_of`.

    It is the sequence number of the forward op whose gradient they compute, which is the `seq_nr`
    of that op's nodes. Sums of gradients, which the engine adds, have none.
    """
    queue: list[Any] = [loss.grad_fn]
    seen = set(queue)
    for function in queue:
        number = function._sequence_nr()

        def before(grads: Any, number: int = number) -> None:
            traceback.current_meta.setdefault("custom", {})["heddle_of"] = number

        def after(results: Any, grads: Any) -> None:
            traceback.current_meta.get("custom", {}).pop("heddle_of", None)

        function.register_prehook(before)
        function.register_hook(after)
        for following, _ in function.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                queue.append(following)


@contextlib.contextmanager
def nested_compile() -> Iterator[None]:
    """Traces through functions that `torch.compile` wraps, as if it did not."""
    dynamo: Any = sys.modules.get("torch._dynamo")
    if dynamo is None:
        yield
        return
    with dynamo.config.patch(error_on_nested_fx_trace=False):
        yield
