"""Training under torchrun: the curve of FSDP2, ranks that are killed, other meshes afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.torch, pytest.mark.processes]
SCRIPT = Path(__file__).with_name("train_script.py")


def torchrun(ranks: int, *arguments: Any) -> int:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(ranks), str(SCRIPT), *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, timeout=300).returncode


def losses(folder: Path) -> dict[int, float]:
    """By step. A step that ran again after a kill counts once, with the same loss."""
    found: dict[int, float] = {}
    for line in Path(folder, "losses").read_text().splitlines():
        step, loss = line.split()
        value = float.fromhex(loss)
        before = found.setdefault(int(step), value)
        assert abs(before - value) <= 1e-5 * value
    return found


def test_fifty_steps_with_kills_have_the_curve_of_fsdp2(tmp_path: Path) -> None:
    fsdp, ours = tmp_path / "fsdp", tmp_path / "ours"
    assert torchrun(4, "fsdp", fsdp) == 0
    assert torchrun(4, "dp=4", ours, 23) != 0
    assert torchrun(4, "dp=2,tp=2", ours, 37) != 0
    assert torchrun(2, "dp=2", ours) == 0
    want, got = losses(fsdp), losses(ours)
    assert list(got) == list(want) == list(range(50))
    for step, value in want.items():
        assert abs(got[step] - value) <= 1e-5 * value, (step, got[step], value)
    assert got[49] < got[0]


def test_two_ranks_have_the_bits_of_fsdp2(tmp_path: Path) -> None:
    """The sum of two numbers has one order, and halving is exact."""
    assert torchrun(2, "fsdp", tmp_path / "fsdp") == 0
    assert torchrun(2, "dp=2", tmp_path / "ours") == 0
    want, got = (torch.load(tmp_path / name / "weights") for name in ("fsdp", "ours"))
    assert list(want) == list(got)
    assert [name for name in want if not torch.equal(want[name], got[name])] == []
