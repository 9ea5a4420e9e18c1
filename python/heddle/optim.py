"""The optimizer of a captured step, as nodes of its graph."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import getitem
from typing import Any

import torch
from torch import Tensor, fx

__all__ = ["AdamW"]

aten: Any = torch.ops.aten


@dataclass(frozen=True)
class AdamW:
    """Clipping by global norm, then AdamW, in the graph of a step.

    It computes the bits of `torch.nn.utils.clip_grad_norm_` and `torch.optim.AdamW(fused=True)`.
    The learning rate is an input of the step, so a schedule changes it; `lr` is its default.
    A `max_norm` of 0 does not clip.

    >>> from heddle.optim import AdamW
    >>> AdamW(lr=3e-4, max_norm=1.0).betas
    (0.9, 0.999)
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 1e-2
    max_norm: float = 0.0

    def __post_init__(self) -> None:
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas are {self.betas}, expected two numbers in [0, 1)")
        for name in ("lr", "eps", "weight_decay", "max_norm"):
            value = getattr(self, name)
            if not value >= 0:
                raise ValueError(f"{name} is {value}, expected a number that is not negative")


def squared_norm_op() -> Callable[..., Tensor]:
    """`heddle::squared_norm`: the square of each tensor's norm; over ranks squares of parts add up.

    Heddle's own runtime registers it. It does so first where it is installed, because an op can be
    registered only once in a process.
    """
    try:
        importlib.import_module("heddle._torch")
    except ImportError:
        pass
    if not hasattr(torch.ops.heddle, "squared_norm"):
        library: Any = torch.library.Library("heddle", "FRAGMENT")  # type: ignore[no-untyped-call]
        library.define("squared_norm(Tensor[] inputs, *, int[] places=[], int count=0) -> Tensor")
        library.impl("squared_norm", _squared_norm, "CompositeExplicitAutograd")
        _libraries.append(library)
    op: Callable[..., Tensor] = torch.ops.heddle.squared_norm.default
    return op


# A library unregisters its ops when it is collected.
_libraries: list[torch.library.Library] = []


def _squared_norm(inputs: Sequence[Tensor], places: Sequence[int] = (), count: int = 0) -> Tensor:
    norms = torch.stack(torch.ops.aten._foreach_norm.Scalar(list(inputs), 2))
    squares = norms * norms
    if not places:
        return squares
    return squares.new_zeros(count).index_copy_(0, squares.new_tensor(places).long(), squares)


@dataclass(frozen=True)
class Update:
    """The new values of one parameter and of its moments."""

    parameter: fx.Node
    exp_avg: fx.Node
    exp_avg_sq: fx.Node


class OptimizerNodes:
    """Appends the update of each parameter to a graph, in the form of Heddle's own steps."""

    def __init__(self, graph: fx.Graph, options: AdamW, fake_mode: Any) -> None:
        self._graph = graph
        self._options = options
        self._mode = fake_mode

    def _call(self, op: Any, args: tuple[Any, ...], val: Any, scope: str, **kwargs: Any) -> fx.Node:
        node = self._graph.call_function(op, args, kwargs)
        node.meta.update(val=val, heddle_phase="opt", heddle_scope=scope)
        return node

    def _empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        with self._mode:
            return torch.empty(shape, dtype=dtype)

    def clip_factor(self, grads: Sequence[fx.Node]) -> tuple[fx.Node, fx.Node]:
        """The global norm, and the factor `min(1, max_norm / (norm + 1e-6))`."""
        count, dtype = len(grads), grads[0].meta["val"].dtype
        number = self._empty(dtype=dtype)
        vector = self._empty(count, dtype=dtype)
        squares = self._call(squared_norm_op(), (list(grads),), vector, "")
        roots = self._call(aten.sqrt.default, (squares,), vector, "")
        norm = self._call(aten.linalg_vector_norm.default, (roots,), number, "")
        above = self._call(aten.add.Scalar, (norm, 1e-6), number, "")
        # PyTorch divides a number by a tensor so.
        inverse = self._call(aten.reciprocal.default, (above,), number, "")
        ratio = self._call(aten.mul.Scalar, (inverse, self._options.max_norm), number, "")
        return norm, self._call(aten.clamp.default, (ratio, None, 1.0), number, "")

    def update(
        self,
        parameter: fx.Node,
        grad: fx.Node,
        moments: tuple[fx.Node, fx.Node],
        hyper: tuple[fx.Node, fx.Node],
        factor: fx.Node | None,
        scope: str,
    ) -> Update:
        """AdamW of one parameter; `hyper` are learning rate and step."""
        val = parameter.meta["val"].detach()
        if factor is not None:
            grad = self._call(aten.mul.Tensor, (grad, factor), val, scope)
        lr, step = hyper
        options = self._options
        call = self._call(
            aten._fused_adamw.tensor_lr,
            ([parameter], [grad], [moments[0]], [moments[1]], [], [step]),
            [[val], [val], [val], [val], []],
            scope,
            lr=lr,
            beta1=options.betas[0],
            beta2=options.betas[1],
            weight_decay=options.weight_decay,
            eps=options.eps,
            amsgrad=False,
            maximize=False,
        )
        return Update(*(self._item(call, index, val, scope) for index in (0, 2, 3)))

    def _item(self, call: fx.Node, index: int, val: Any, scope: str) -> fx.Node:
        results = self._call(getitem, (call, index), [val], scope)
        return self._call(getitem, (results, 0), val, scope)
