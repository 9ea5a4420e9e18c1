"""The package as a whole: stubs, typing marker, public names."""

from __future__ import annotations

import re
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


def test_private_names_of_torch_are_in_one_file() -> None:
    folder = Path(heddle.__file__).parent
    names = re.compile(r"\btorch(?:\.\w+)*\._[a-z]\w*|(?:from|import) torch(?:\.\w+)*\._\w+")
    found = {
        f"{path.name}: {name}"
        for path in folder.glob("*.py")
        if path.name != "_torch_names.py"
        for line in path.read_text().splitlines()
        for name in names.findall(line)
        # Ops of ATen are public, whatever their names.
        if not name.startswith("torch.ops.")
    }
    assert found == set()


def test_the_extension_refuses_another_torch() -> None:
    pytest.importorskip("heddle._torch")
    code = "import torch; torch.__version__ = '2.99.1+cpu'; import heddle._torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "built for torch 2." in done.stderr and "this is torch 2.99.1" in done.stderr


def test_modules_are_attributes() -> None:
    code = (
        "import sys, heddle; names = {'backend', 'fx', 'hf', 'testing'}; "
        "assert names <= set(dir(heddle)); assert heddle.testing.golden; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    pytest.importorskip("torch")
    code = "import heddle; assert heddle.fx.as_pass and heddle.backend.compiled and heddle.hf.rules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_command_line_is_that_of_the_program(program_file: Path, tmp_path: Path) -> None:
    graph = tmp_path / "g.hd"
    graph.write_text(
        "heddle 1 local\ngraph @g(%x: f32[4,6]) -> (%x) {\n  %a = aten.t(%x)\n}\n", "utf-8"
    )

    def ended(*command: str | Path) -> tuple[int, str, str]:
        done = subprocess.run([*command], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    module = (sys.executable, "-m", "heddle")
    for words in (["--version"], ["opt", str(graph), "--pipeline=dce"], ["opt", "absent.hd"]):
        found = ended(*module, *words)
        assert found == ended(program_file, *words)
        assert found[0] == (1 if "absent.hd" in words else 0)
    code, _, message = ended(*module, "train")
    assert code == 1 and "needs libtorch" in message
