"""Training under torchrun: the curve of FSDP2, ranks that are killed, other meshes afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import train_script  # noqa: E402
from ranks import run_ranks  # noqa: E402
from train_script import STEPS  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.processes]
SOAK = "HEDDLE_SOAK" in os.environ


def launch(folder: Path, ranks: int, *arguments: Any, torchrun: bool = SOAK) -> bool:
    """Trains on ranks, and tells whether all ended well. Imports take most of torchrun's time."""
    folder.mkdir(exist_ok=True)
    if not torchrun:
        try:
            kind, *rest = arguments
            group = Path(tempfile.mkdtemp(dir=folder))
            run_ranks(ranks, group, train_script.work, kind, str(folder), *rest)
        except AssertionError:
            return False
        return True
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(ranks), train_script.__file__]
    command += map(str, (arguments[0], folder, *arguments[1:]))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, timeout=300, check=False)
    return done.returncode == 0


def losses(folder: Path) -> dict[int, float]:
    """By step. A step that ran again after a kill counts once, with the same loss."""
    found: dict[int, float] = {}
    for line in Path(folder, "losses").read_text().splitlines():
        step, loss = line.split()
        value = float.fromhex(loss)
        before = found.setdefault(int(step), value)
        assert abs(before - value) <= 1e-5 * value
    return found


def test_steps_with_kills_have_the_curve_of_fsdp2(tmp_path: Path) -> None:
    fsdp, ours = tmp_path / "fsdp", tmp_path / "ours"
    assert launch(fsdp, 4, "fsdp")
    assert not launch(ours, 4, "dp=4", STEPS * 9 // 20)
    assert not launch(ours, 4, "dp=2,tp=2", STEPS * 15 // 20)
    assert launch(ours, 2, "dp=2", torchrun=True)
    want, got = losses(fsdp), losses(ours)
    assert list(got) == list(want) == list(range(STEPS))
    for step, value in want.items():
        assert abs(got[step] - value) <= 1e-5 * value, (step, got[step], value)
    assert got[STEPS - 1] < got[0]


def test_two_ranks_have_the_bits_of_fsdp2(tmp_path: Path) -> None:
    """The sum of two numbers has one order, and halving is exact."""
    assert launch(tmp_path / "fsdp", 2, "fsdp")
    assert launch(tmp_path / "ours", 2, "dp=2")
    want, got = (torch.load(tmp_path / name / "weights") for name in ("fsdp", "ours"))
    assert list(want) == list(got)
    assert [name for name in want if not torch.equal(want[name], got[name])] == []
