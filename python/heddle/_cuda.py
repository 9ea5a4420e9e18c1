"""The kernels that a GPU would run, on tensors without data of a machine that may have no GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

__all__ = ["CudaKernels"]

_HALF = (torch.bfloat16, torch.float16)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor | None:
    """The flash or the memory-efficient kernel; None where a GPU would run the plain formula."""
    if query.dim() != 4 or query.size(-1) != value.size(-1) or query.size(-1) % 8 != 0:
        return None
    if enable_gqa and key.size(1) != query.size(1):
        key = key.repeat_interleave(query.size(1) // key.size(1), 1)
        value = value.repeat_interleave(query.size(1) // value.size(1), 1)
    if attn_mask is None and query.dtype in _HALF and query.size(-1) <= 256:
        flash = torch.ops.aten._scaled_dot_product_flash_attention.default
        out: Tensor = flash(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
        return out
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        zeros = torch.zeros_like(attn_mask, dtype=query.dtype)
        attn_mask = zeros.masked_fill(attn_mask.logical_not(), float("-inf"))
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*query.shape[:3], key.size(2))
    efficient = torch.ops.aten._scaled_dot_product_efficient_attention.default
    result: Tensor = efficient(
        query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale
    )[0]
    return result


def _rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor | None:
    if weight is None or weight.dtype != input.dtype:
        return None
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    fused = torch.ops.aten._fused_rms_norm.default
    out: Tensor = fused(input, list(normalized_shape), weight, eps)[0]
    return out


_KERNELS: dict[Callable[..., Any], Callable[..., Tensor | None]] = {
    F.scaled_dot_product_attention: _attention,
    F.rms_norm: _rms_norm,
    torch.rms_norm: _rms_norm,
}


class CudaKernels(TorchFunctionMode):
    """Records `F.scaled_dot_product_attention` and `F.rms_norm` as the kernels of a GPU."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kernel = _KERNELS.get(func)
        if kernel is not None:
            result = kernel(*args, **(kwargs or {}))
            if result is not None:
                return result
        return func(*args, **(kwargs or {}))
