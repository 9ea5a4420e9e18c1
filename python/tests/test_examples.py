"""Runs the examples as a user does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "python").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.name for path in EXAMPLES])
def test_example(path: Path) -> None:
    text = path.read_text()
    for module in ("torch", "transformers"):
        if f"import {module}" in text or f"from {module} import" in text:
            pytest.importorskip(module)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout and not done.stderr


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3
