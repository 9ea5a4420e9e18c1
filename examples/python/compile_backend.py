"""Compiles a module with Heddle's backend for torch.compile, and prints what it did.

    python examples/python/compile_backend.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

import heddle.backend


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return x.square().mean()


torch.manual_seed(0)
model, x = Model(), torch.randn(16, 64)
want = model(x)
want.backward()
grads = [parameter.grad for parameter in model.parameters()]
model.zero_grad(set_to_none=True)

with tempfile.TemporaryDirectory() as folder:
    options = {"pipeline": "reorder-for-memory", "report": str(Path(folder, "step.html"))}
    # An installed package registers the name; the function itself works everywhere.
    name = "heddle" if "heddle" in torch.compiler.list_backends() else heddle.backend.heddle
    fast = torch.compile(model, backend=name, options=options)
    got = fast(x)
    got.backward()
    pages = sorted(path.name for path in Path(folder).iterdir())

for one in heddle.backend.compiled():
    print(one)
print(f"reports: {', '.join(pages)}")
same = torch.equal(got, want) and all(
    torch.equal(a, b.grad) for a, b in zip(grads, model.parameters(), strict=True)
)
print(f"loss {got.item():.6f}; the bits of the module alone: {same}")
