"""Brings a planned step back as FX graphs, which four processes run over Gloo.

    python examples/python/fx_roundtrip.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

import heddle

RANKS = 4


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 30)
        self.blocks = nn.ModuleList([nn.Linear(30, 30) for _ in range(2)])
        self.head = nn.Linear(30, 50)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = x + F.gelu(block(x))
        return self.head(x)


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch["x"]).flatten(0, 1), batch["y"].flatten())


def rank(number: int, store: str) -> None:
    dist.init_process_group(
        "gloo", store=dist.FileStore(store, RANKS), rank=number, world_size=RANKS
    )
    torch.manual_seed(0)
    model = Model()
    batch: dict[str, Any] = {key: torch.randint(0, 50, (8, 16)) for key in ("x", "y")}
    step = heddle.capture(model, batch, loss=loss)
    program = step.compile(step.plan({"dp": RANKS}))

    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp",))
    gm = program.to_fx(mesh)  # aten and _c10d_functional only, for this rank
    run = program.start(mesh, weights=model)
    with torch.no_grad():
        value, *grads = gm(*run.inputs(batch, whole=True))

    # What heddle.from_fx reads is the same program, text for text.
    packed = heddle.run_pipeline(program.graph, "pack-collectives")
    assert str(heddle.from_fx(gm)) == str(packed)
    if number == 0:
        calls = [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]
        collectives = [name for name in calls if "c10d" in name and "wait" not in name]
        print(f"{len(calls)} calls, {len(collectives)} collectives, read back with the same text")
        print(f"loss on {RANKS} ranks {value.item():.6f}, eager {loss(model, batch).item():.6f}")
        print(f"{len(grads)} gradients; the first has {tuple(grads[0].shape)} of (50, 30)")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        arguments = (str(Path(folder, "store")),)
        mp.start_processes(rank, arguments, nprocs=RANKS, start_method="forkserver")
