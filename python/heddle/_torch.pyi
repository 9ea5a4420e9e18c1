"""
Runs graphs on tensors of torch. Everything here is for the package `heddle`.
"""

import torch

def fail_check(message: str) -> None:
    """Fails an internal check, so that tests see what happens then."""

class DeviceProgram:
    """
    The program of one rank on a device, bound to its input tensors.

    On a GPU it has Heddle's kernels. With `record`, the third run becomes a CUDA graph.
    """

    def __init__(self, text: str, device: str, record: bool) -> None: ...

    @property
    def is_recorded(self) -> bool:
        """Whether runs replay a CUDA graph."""

    @property
    def notes(self) -> list[str]:
        """Kernels and graphs that are not used, and why."""

    def bind(self, inputs: list[torch.Tensor]) -> None:
        """Sets the tensors that later runs read. Updates are in place."""

    def run(self) -> list[torch.Tensor]:
        """
        Runs the graph. Results of a replayed run are the same tensors every time.
        """

class World:
    """
    All ranks of a graph in this process.

    `reducer` is the order of additions: `rank`, `gloo`, `ring:CHANNELS` or `tree`.
    """

    def __init__(self, text: str, reducer: str = 'rank') -> None: ...

    @property
    def ranks(self) -> int:
        """The number of ranks."""

    def run(self, inputs: list[list[torch.Tensor]]) -> list[list[torch.Tensor]]:
        """
        Runs the graph on each rank's inputs, and returns each rank's outputs. Updates are in place.
        """
