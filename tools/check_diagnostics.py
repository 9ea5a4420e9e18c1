#!/usr/bin/env python3
"""Fails for a kind of diagnostic that no golden file or unit test shows, or that no code reports."""
import pathlib
import re
import sys


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    listed = re.findall(r'HEDDLE_DIAGNOSTIC\((\w+), "([\w-]+)"\)', (root / "heddle/base/diagnostics.def").read_text())
    goldens = "\n".join(p.read_text() for p in root.rglob("heddle/**/*.hdt"))
    tests = "\n".join(p.read_text() for top in ("heddle", "test") for p in (root / top).rglob("*_test.*"))
    code = "\n".join(p.read_text() for p in (root / "heddle").rglob("*.[hc]*") if not p.name.endswith("_test.cc"))
    problems = []
    for ident, name in listed:
        if f"Diag::{ident}" not in code:
            problems.append(f"{name}: nothing reports it")
        elif f"[{name}]" not in goldens and f"Diag::{ident}" not in tests and f"[{name}]" not in tests:
            problems.append(f"{name}: no test shows it")
    if [i for i, _ in listed] != sorted(i for i, _ in listed):
        problems.append("diagnostics.def is not in alphabetical order")
    print("\n".join(problems) if problems else f"{len(listed)} kinds of diagnostics, each shown by a test")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
