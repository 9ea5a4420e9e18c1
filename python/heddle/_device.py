"""A program of one rank on Heddle's own runtime: with its kernels and CUDA graphs on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ._core import Graph

__all__ = ["DeviceProgram"]

# The state of a run is the same tensors in every step; these change.
_OF_A_STEP = ("batch", "hyper")


class DeviceProgram:
    """Calls take all inputs in the order of the graph, and give all outputs.

    The runtime is bound to tensors: batches are copied into those of the first call. With the
    optimizer in the graph, the step is replayed as a CUDA graph from the third call on. Without it,
    every call has gradients of its own, which the caller keeps.
    """

    def __init__(self, graph: Graph, device: torch.device) -> None:
        from . import _torch

        self._roles = [value.role for value in graph.inputs]
        self._results = [output.role != "update" for output in graph.outputs]
        self._records = not any(output.role == "grad" for output in graph.outputs)
        self._program: Any = _torch.DeviceProgram(str(graph), str(device), self._records)
        self._bound: list[Tensor] = []

    @property
    def notes(self) -> list[str]:
        """Kernels and CUDA graphs that are not used, and why."""
        return list(self._program.notes)

    @property
    def is_recorded(self) -> bool:
        """Whether calls replay a CUDA graph."""
        return bool(self._program.is_recorded)

    def __call__(self, *inputs: Tensor) -> Sequence[Tensor]:
        if not self._holds(inputs):
            self._bound = [
                tensor.clone() if role in _OF_A_STEP else tensor
                for role, tensor in zip(self._roles, inputs, strict=True)
            ]
            self._program.bind(self._bound)
        for role, bound, tensor in zip(self._roles, self._bound, inputs, strict=True):
            if role in _OF_A_STEP:
                bound.copy_(tensor)
        outputs: list[Tensor] = self._program.run()
        if not self._program.is_recorded:
            return outputs
        # The next replay overwrites its results.
        return [
            value.clone() if is_result else value
            for value, is_result in zip(outputs, self._results, strict=True)
        ]

    def _holds(self, inputs: Sequence[Tensor]) -> bool:
        """Whether the state is still that of the last call."""
        return len(self._bound) == len(inputs) and all(
            role in _OF_A_STEP or bound.data_ptr() == tensor.data_ptr()
            for role, bound, tensor in zip(self._roles, self._bound, inputs, strict=True)
        )
