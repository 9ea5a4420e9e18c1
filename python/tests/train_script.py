"""Training as a user of torchrun writes it: see test_torchrun.

    torchrun --nproc-per-node 4 train_script.py dp=4 FOLDER [KILLED_STEP]

The mesh `fsdp` trains with FSDP2 instead. Rank 0 writes `losses`, a line for each step. Rank 1
kills itself before the step KILLED_STEP.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import heddle
from test_to_fx import Uneven, uneven_loss

STEPS = 50 if "HEDDLE_SOAK" in os.environ else 20
SAVE_EVERY = STEPS // 5


def batch_of(step: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(step)
    return {
        "x": torch.randint(0, 11, (8, 6), generator=generator),
        "y": torch.randint(0, 7, (8, 6), generator=generator),
    }


def rows(batch: dict[str, Any]) -> dict[str, Any]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    return {key: value.chunk(ranks)[rank] for key, value in batch.items()}


def model_of() -> Any:
    torch.manual_seed(0)
    return Uneven()


def write(folder: Path, step: int, loss: float) -> None:
    if dist.get_rank() == 0:
        with Path(folder, "losses").open("a") as file:
            file.write(f"{step} {loss.hex()}\n")


def train_fsdp(folder: Path) -> dict[str, Any]:
    model = model_of()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(STEPS):
        loss = uneven_loss(model, rows(batch_of(step)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(loss.detach())
        write(folder, step, loss.item() / dist.get_world_size())
    return {name: value.full_tensor() for name, value in model.state_dict().items()}


def train(mesh_text: str, folder: Path, killed: int) -> dict[str, Any]:
    sizes = {axis: int(size) for axis, size in (part.split("=") for part in mesh_text.split(","))}
    step = heddle.capture(model_of(), batch_of(0), loss=uneven_loss)
    rules = heddle.Rules(columns=["blocks.0"], rows=["blocks.1"])
    program = step.compile(step.plan(sizes, rules=rules))
    mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    run = program.start(mesh, weights=model_of())
    optimizer = torch.optim.AdamW(run.parameters(), lr=3e-3)
    checkpoint = Path(folder, "checkpoint")
    if checkpoint.exists():
        run.load(checkpoint, optimizer=optimizer)
    for number in range(run.steps, STEPS):
        if number == killed and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        loss = run(batch_of(number), whole=True)
        optimizer.step()
        optimizer.zero_grad()
        write(folder, number, loss.item())
        if run.steps % SAVE_EVERY == 0:
            run.save(checkpoint, optimizer=optimizer)
    return {name: run.whole(name) for name, _ in run.named_parameters()}


def work(rank: int, kind: str, folder: str, killed: int = -1) -> None:
    """What each rank does, in the group that its launcher made."""
    weights = train_fsdp(Path(folder)) if kind == "fsdp" else train(kind, Path(folder), killed)
    if rank == 0:
        torch.save(weights, Path(folder, "weights"))


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    work(dist.get_rank(), sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
