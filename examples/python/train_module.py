"""Trains a module on four ranks, stops, and resumes on two with the same losses.

    python examples/python/train_module.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

import heddle

STEPS = 20


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, 48)
        self.blocks = nn.ModuleList(
            [nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 48)) for _ in range(2)]
        )
        self.head = nn.Linear(48, 32)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch["x"]).flatten(0, 1), batch["y"].flatten())


def batch_of(step: int) -> dict[str, Tensor]:
    """Every token is followed by its successor."""
    generator = torch.Generator().manual_seed(step)
    x = torch.randint(0, 32, (16, 12), generator=generator)
    return {"x": x, "y": (x + 1) % 32}


def train(rank: int, ranks: int, folder: str, first: int, last: int) -> None:
    store = dist.FileStore(str(Path(folder, f"store-{ranks}")), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    model = Model()
    step = heddle.capture(model, batch_of(0), loss=loss)
    program = step.compile(step.plan({"dp": ranks}))

    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("dp",))
    run = program.start(mesh, weights=model)
    optimizer = torch.optim.AdamW(run.parameters(), lr=3e-3)
    checkpoint = Path(folder, "checkpoint")
    if first > 0:
        run.load(checkpoint, optimizer=optimizer)
    for number in range(run.steps, last):
        value = run(batch_of(number), whole=True)
        norm = run.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and (number % 4 == 0 or number == last - 1):
            print(f"{ranks} ranks, step {number:2}: loss {value:.4f}, norm {norm:.3f}", flush=True)
    run.save(checkpoint, optimizer=optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for ranks, first, last in ((4, 0, STEPS // 2), (2, STEPS // 2, STEPS)):
            arguments = (ranks, folder, first, last)
            mp.start_processes(train, arguments, nprocs=ranks, start_method="forkserver")
