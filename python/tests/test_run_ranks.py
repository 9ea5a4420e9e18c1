"""Runs in processes over Gloo: the losses of FSDP2, and resume on another mesh."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import heddle

torch = pytest.importorskip("torch")

from ranks import run_ranks  # noqa: E402
from test_to_fx import Uneven, uneven_loss  # noqa: E402

STEPS = 50 if "HEDDLE_SOAK" in os.environ else 20
pytestmark = [pytest.mark.torch, pytest.mark.processes]


def batch_of(step: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(step)
    return {
        "x": torch.randint(0, 11, (8, 6), generator=generator),
        "y": torch.randint(0, 7, (8, 6), generator=generator),
    }


def model() -> Any:
    torch.manual_seed(0)
    return Uneven()


def rows(batch: dict[str, Any], rank: int, ranks: int) -> dict[str, Any]:
    return {key: value.chunk(ranks)[rank] for key, value in batch.items()}


def train_fsdp(rank: int) -> list[float]:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
    trained = model()
    for block in trained.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(trained, mesh=mesh)
    optimizer = torch.optim.AdamW(trained.parameters(), lr=3e-3)
    losses = []
    for number in range(STEPS):
        value = uneven_loss(trained, rows(batch_of(number), rank, 4))
        value.backward()
        torch.nn.utils.clip_grad_norm_(trained.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        shown = value.detach().clone()
        dist.all_reduce(shown)
        losses.append(shown.item() / 4)
    return losses


def train_heddle(
    rank: int, mesh_sizes: dict[str, int], folder: str, last: int, rules: bool
) -> tuple[list[float], dict[str, str]]:
    from torch.distributed.device_mesh import init_device_mesh

    step = heddle.capture(model(), batch_of(0), loss=uneven_loss)
    given = heddle.Rules(columns=["blocks.0"], rows=["blocks.1"]) if rules else None
    program = step.compile(step.plan(mesh_sizes, rules=given))
    mesh = init_device_mesh("cpu", tuple(mesh_sizes.values()), mesh_dim_names=tuple(mesh_sizes))
    saved = Path(folder, "saved")
    run = program.start(mesh, weights=None if saved.exists() else model())
    optimizer = torch.optim.AdamW(run.parameters(), lr=3e-3)
    torch.distributed.barrier()
    if saved.exists():
        run.load(saved, optimizer=optimizer)
    losses = []
    for number in range(run.steps, last):
        losses.append(run(batch_of(number), whole=True).item())
        run.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
    before = run.hashes()
    if not rules:
        for name, value in run.state_dict().items():
            assert torch.equal(value.full_tensor(), run.whole(name)), name
    run.save(saved, optimizer=optimizer)
    return losses, before


def test_the_losses_of_fsdp2_and_resume_on_other_meshes(tmp_path: Path) -> None:
    want = run_ranks(4, tmp_path / "fsdp", train_fsdp)[0]
    got: list[float] = []
    for at, (sizes, last) in enumerate(
        [
            ({"dp": 4}, STEPS * 2 // 5),
            ({"dp": 2, "tp": 2}, STEPS * 7 // 10),
            ({"dp_replicate": 2, "dp": 2}, STEPS),
        ]
    ):
        found = run_ranks(4, tmp_path / str(at), train_heddle, sizes, str(tmp_path), last, at == 1)
        # Every rank has the same losses and whole tensors.
        assert all(one == found[0] for one in found)
        got += found[0][0]
    assert len(got) == STEPS
    for ours, theirs in zip(got, want, strict=True):
        assert abs(ours - theirs) <= 1e-5 * theirs, (got, want)
    assert got[-1] < got[0]


def dtensors(rank: int) -> str:
    from torch.distributed.device_mesh import init_device_mesh

    torch.manual_seed(0)
    given = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    batch = {"input": torch.randn(8, 8)}
    step = heddle.capture(given, batch, loss=lambda m, b: m(b["input"]).square().mean())
    program = step.compile(step.plan("dp=2,tp=2", rules=heddle.Rules(columns=["0"], rows=["1"])))
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    run = program.start(mesh, weights=given)
    state = run.state_dict()
    for name, value in given.named_parameters():
        assert torch.equal(run.whole(name), value), name
        assert torch.equal(state[name].full_tensor(), value), name
    # The dimension that tp cuts first is cut by dp again.
    return str(state["0.weight"].placements)


def test_state_is_dtensors(tmp_path: Path) -> None:
    found = run_ranks(4, tmp_path, dtensors)
    assert "_StridedShard" in found[0] or "_S(" in found[0], found


def wrong_meshes(rank: int) -> list[str]:
    from torch.distributed.device_mesh import init_device_mesh

    step = heddle.capture(model(), batch_of(0), loss=uneven_loss)
    program = step.compile(step.plan("dp=2"))
    found = []
    for names in (("dp",), ("x",)):
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=names)
        try:
            program.start(mesh, weights=model())
            found.append("")
        except heddle.RunError as error:
            found.append(str(error))
    return found


def test_a_mesh_that_does_not_fit(tmp_path: Path) -> None:
    for good, bad in run_ranks(2, tmp_path, wrong_meshes):
        assert good == ""
        assert "the mesh is [x=2], the program is for [dp=2]" in bad
        assert "mesh_dim_names=('dp',)" in bad
