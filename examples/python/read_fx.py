"""Reads an FX graph of a training step from memory, and spreads it over four ranks.

python examples/python/read_fx.py
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

import heddle


def step(up: torch.Tensor, down: torch.Tensor, x: torch.Tensor, y: torch.Tensor):
    loss = F.mse_loss(torch.relu(x @ up) @ down, y, reduction="sum")
    return [loss, *torch.autograd.grad(loss, [up, down])]


def main() -> None:
    up, down = torch.ones(64, 256, requires_grad=True), torch.ones(256, 64, requires_grad=True)
    traced = make_fx(step, tracing_mode="fake")(up, down, torch.ones(32, 64), torch.ones(32, 64))
    graph = heddle.from_fx(
        traced,
        [
            dict(role="param", index=0, label="up.weight", unit="mlp"),
            dict(role="param", index=1, label="down.weight", unit="mlp"),
            dict(role="batch", label="x"),
            dict(role="batch", label="y"),
        ],
        [dict(role="loss"), dict(role="grad", index=0), dict(role="grad", index=1)],
    )
    captured = heddle.Step(graph)
    print(captured, captured.remarks)
    program = captured.compile(captured.plan("dp=4"))
    print(program.graph)


if __name__ == "__main__":
    main()
