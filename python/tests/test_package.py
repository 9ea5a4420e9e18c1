"""The package as a whole: stubs, typing marker, public names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import heddle


def test_public_names_exist() -> None:
    assert sorted(heddle.__all__) == heddle.__all__
    for name in heddle.__all__:
        assert getattr(heddle, name) is not None
    assert (Path(heddle.__file__).parent / "py.typed").exists()


def test_stubs_are_those_of_the_module() -> None:
    stubgen = pytest.importorskip("nanobind.stubgen")
    from heddle import _core

    generator = stubgen.StubGen(_core)
    generator.put(_core)
    stubs = Path(heddle.__file__).parent / "_core.pyi"
    assert stubs.read_text() == generator.get(), "`make docs` writes python/heddle/_core.pyi"


def test_the_extension_refuses_another_torch() -> None:
    pytest.importorskip("heddle._torch")
    code = "import torch; torch.__version__ = '2.99.1+cpu'; import heddle._torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "built for torch 2." in done.stderr and "this is torch 2.99.1" in done.stderr
