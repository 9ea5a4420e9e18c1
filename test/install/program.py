#!/usr/bin/env python3
"""Checks an installed program: program.py BUILD_DIR SOURCE_DIR

The program must not load a library from the checkout, and must run where the checkout does not
exist."""
import os
import pathlib
import subprocess
import sys
import tempfile

JOB = ["train", "--model=llama3", "--flavor=debugmodel", "--model.n_layers=1", "--training.seq_len=16", "--training.steps=2"]


def output(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def hides_folders():
    """Whether this user may mount an empty folder over another, in a namespace of its own."""
    command = ["unshare", "--mount", "true"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def check(build, source, folder):
    prefix = folder / "usr"
    output("cmake", "--install", build, "--component", "program", "--strip", "--prefix", str(prefix))
    assert not (prefix / "include").exists(), "headers are not part of the program"
    for program in (prefix / "bin").iterdir():
        for line in output("ldd", str(program)).splitlines():
            assert "not found" not in line and source not in line, f"{program.name}: {line.strip()}"
    print("no library of the installed program is in the checkout")
    # A moved program finds its libraries.
    moved = folder / "moved"
    prefix.rename(moved)
    heddle = str(moved / "bin" / "heddle")
    if not hides_folders():
        output(heddle, *JOB, cwd=folder)
        print("skipped: hiding the checkout (no permission to mount)")
        return
    script = 'mount -t tmpfs none "$0" && exec "$@"'
    shown = output("unshare", "--mount", "--propagation", "private", "bash", "-c", script, source, heddle, *JOB, cwd=folder)
    assert "step:  2" in shown or "step: 2" in shown, shown
    print("trains without the checkout")


def main():
    build, source = (os.path.realpath(path) for path in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder:
        check(build, source, pathlib.Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
