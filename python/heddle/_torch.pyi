"""
Runs graphs on tensors of torch. Everything here is for the package `heddle`.
"""

import torch

def fail_check(message: str) -> None:
    """Fails an internal check, so that tests see what happens then."""

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
