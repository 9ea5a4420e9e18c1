#!/usr/bin/env python3
"""Fails for a kind of diagnostic or remark that no test shows, or that no code reports.

A golden shows a kind by its name in brackets. For a diagnostic, a unit test is enough; remarks
are results, so a golden must show them."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def read(paths):
    return "\n".join(p.read_text() for p in paths)


def check(path, macro, enum, shown, code):
    """Returns the problems of the kinds that `path` lists, and the number of kinds."""
    listed = re.findall(macro + r'\((\w+), "([\w-]+)"', (ROOT / path).read_text())
    problems = []
    for ident, name in listed:
        if f"{enum}::{ident}" not in code:
            problems.append(f"{name}: nothing reports it")
        elif not shown(ident, name):
            problems.append(f"{name}: no test shows it")
    idents = [ident for ident, _ in listed]
    if not idents:
        problems.append(f"{path} lists nothing")
    if idents != sorted(idents):
        problems.append(f"{path} is not in alphabetical order")
    return problems, len(listed)


def main():
    goldens = read(ROOT.rglob("heddle/**/*.hdt"))
    tests = read(p for top in ("heddle", "test") for p in (ROOT / top).rglob("*_test.*"))
    code = read(p for p in (ROOT / "heddle").rglob("*.[hc]*") if not p.name.endswith("_test.cc"))

    def diagnostic_shown(ident, name):
        return f"[{name}]" in goldens or f"Diag::{ident}" in tests or f"[{name}]" in tests

    def remark_shown(_, name):
        return f"[{name}]" in goldens

    problems, diagnostics = check("heddle/core/base/diagnostics.def", "HEDDLE_DIAGNOSTIC", "Diag", diagnostic_shown, code)
    more, remarks = check("heddle/compile/manager/remarks.def", "HEDDLE_REMARK", "RemarkKind", remark_shown, code)
    problems += more
    print("\n".join(problems) if problems else f"{diagnostics} kinds of diagnostics and {remarks} of remarks, each shown by a test")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
