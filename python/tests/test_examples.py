"""Runs the examples as a user does."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "python").glob("*.py"))
SOAK = "HEDDLE_SOAK" in os.environ


def run_script(path: str, output: str, *arguments: str) -> None:
    """A script in this process, which nothing else uses. Its output goes to files."""
    for name, stream in (("out", sys.stdout), ("err", sys.stderr)):
        with Path(output, name).open("w") as file:
            os.dup2(file.fileno(), stream.fileno())
    sys.argv = [path, *arguments]
    runpy.run_path(path, run_name="__main__")
    sys.stdout.flush()


def forked(path: Path, folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Runs a script in a process that has imported torch already: imports take most of the time."""
    from ranks import server

    process = server().Process(target=run_script, args=(str(path), str(folder), *arguments))
    process.start()
    process.join()
    texts = (Path(folder, name).read_text() for name in ("out", "err"))
    return (process.exitcode or 0, *texts)


def started(path: Path, *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, path, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.name for path in EXAMPLES])
def test_example(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    for module in ("torch", "transformers"):
        if f"import {module}" in text or f"from {module} import" in text:
            pytest.importorskip(module)
    arguments = ["4"] if path.name == "plan_hf.py" and not SOAK else []
    if SOAK or "torch" not in text or "start_processes" in text:
        code, out, err = started(path, *arguments)
    else:
        code, out, err = forked(path, tmp_path, *arguments)
    assert code == 0, err
    assert out and not err


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3
