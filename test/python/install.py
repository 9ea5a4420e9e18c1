#!/usr/bin/env python3
"""Installs, uses, removes and installs again a wheel, in an environment without other packages: that
of a build folder, or a file that `make wheel` made.

usage: install.py BUILD|FILE.whl
"""

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
USE = """
import importlib.metadata, sys
import heddle
assert "torch" not in sys.modules
assert importlib.metadata.version("heddle-compiler") == heddle.__version__
(entry,) = importlib.metadata.entry_points(group="torch_dynamo_backends", name="heddle")
assert entry.value == "heddle.backend:heddle"
graph = heddle.Graph.parse('''heddle 1 local
graph @g(%x: f32[4,6]) -> (%b) {
  %a = aten.t(%x)
  %b = aten.t(%a)
}''')
assert heddle.Graph.parse(str(graph)) == graph
print(heddle.__path__[0])
"""


def main() -> int:
    if not find_spec("scikit_build_core"):
        print("skipped: python.install: no scikit_build_core in this Python")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        return check(Path(folder), sys.argv[1])


def check(folder: Path, given: str) -> int:
    wheel = given
    if not given.endswith(".whl"):
        made = [ROOT / "tools/python_wheel.sh", sys.executable, given, folder / "wheel"]
        wheel = subprocess.run(made, check=True, text=True, stdout=subprocess.PIPE).stdout.strip()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    python = folder / "env/bin/python"
    (site,) = (folder / "env").glob("lib/python*/site-packages")
    empty = sorted(site.iterdir())

    def pip(*words: str) -> None:
        tool = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
        subprocess.run([*tool, *words], check=True, stdout=subprocess.DEVNULL)

    def use() -> subprocess.CompletedProcess[str]:
        # In the checkout, whose folder heddle/ has the C++ sources: the package must win.
        return subprocess.run([python, "-B", "-c", USE], cwd=ROOT, text=True, capture_output=True)

    assert use().returncode != 0
    for options in ([], ["--force-reinstall"]):
        pip("install", "--no-index", "--no-deps", "--no-compile", *options, wheel)
        used = use()
        assert used.returncode == 0, used.stderr
        assert used.stdout.strip() == str(site / "heddle"), used.stdout
    # Examples that need no torch.
    for name in ("plan_step.py", "search_plans.py"):
        example = [python, "-B", ROOT / "examples/python" / name]
        done = subprocess.run(example, cwd=folder, text=True, capture_output=True)
        assert done.returncode == 0 and done.stdout, done.stderr
    pip("uninstall", "--yes", "heddle-compiler")
    assert sorted(site.iterdir()) == empty, sorted(site.iterdir())
    assert use().returncode != 0
    pip("install", "--no-index", "--no-deps", "--no-compile", wheel)
    assert use().returncode == 0
    print("installed, replaced, removed and installed again:", Path(wheel).name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
