"""What a step was captured from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from . import hf
from ._trace import fail


def own_loss(model: nn.Module, batch: Any, kwargs: Mapping[str, Any]) -> Any:
    """The loss that the model itself computes from the batch."""
    if isinstance(batch, Mapping):
        output = model(**batch, **kwargs)
    elif isinstance(batch, (tuple, list)):
        output = model(*batch, **kwargs)
    else:
        output = model(batch, **kwargs)
    if isinstance(output, Tensor):
        return output
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if not isinstance(loss, Tensor):
        raise fail(
            "loss",
            f"the model gives a {type(output).__name__} without a loss",
            hf.output_hint(output) or "give `loss=`, a function of model and batch",
        )
    return loss


@dataclass(frozen=True)
class Source:
    """What a step was captured from.

    >>> import torch
    >>> from heddle._source import Source
    >>> model = torch.nn.Linear(4, 1)
    >>> Source(model, lambda m, b: m(b).sum(), None).compute(model, torch.zeros(2, 4)).shape
    torch.Size([])
    """

    model: nn.Module
    loss: Callable[..., Any] | None
    param_dtype: torch.dtype | None
    kwargs: Mapping[str, Any] | None = None

    def compute(self, model: nn.Module, batch: Any) -> Tensor:
        """The loss of a copy of the model."""
        options = dict(self.kwargs or {})
        value: Tensor = (
            own_loss(model, batch, options)
            if self.loss is None
            else self.loss(model, batch, **options)
        )
        return value
