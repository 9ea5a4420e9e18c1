#!/usr/bin/env python3
"""Prints what `ctest` skipped, and why.

    skipped.py RESULTS [--expect-none]

RESULTS is the file of `ctest --output-junit`. Skipped are
- tests that ctest did not run or that ended with their exit code for it,
- cases of GoogleTest that called GTEST_SKIP, and of Python's unittest,
- parts of other tests, which print a line `skipped: PART: REASON`.
Cases of one test with one reason share a line. --expect-none fails if anything was skipped.
"""
import collections
import re
import sys
import xml.etree.ElementTree

# `file:12: Skipped`, then the reason on separate lines, then the name.
GTEST = re.compile(r": Skipped\n(.*?)\n*\[  SKIPPED \] (\S+?) \(", re.S)
# `test_name (place)`, then a line of documentation if there is one, then `... skipped 'reason'`.
UNITTEST = re.compile(r"^(\w+) \([\w.]+\)(?:\n.*)? \.\.\. skipped ['\"](.*)['\"]$", re.M)
LINE = re.compile(r"^(?:\S+ )?skipped: (.*)$", re.M)


def skips_of(case):
    """Yields (name, reason) of everything that one test of ctest skipped."""
    name = case.get("name")
    output = case.findtext("system-out") or ""
    lines = LINE.findall(output)
    if case.get("status") == "disabled":
        yield name, "disabled"
    elif case.find("skipped") is not None or case.get("status") == "notrun":
        yield name, "; ".join(lines) or case.find("skipped").get("message", "no reason given")
        return
    for reason, part in GTEST.findall(output):
        # `Suite.Case/parameter` is one of many.
        yield f"{name}: {part.split('/')[-2] if part.count('/') > 1 else part.split('/')[0]}", \
            " ".join(reason.split()) or "no reason given"
    for part, reason in UNITTEST.findall(output):
        yield f"{name}: {part}", reason
    for line in lines:
        yield name, line


def main():
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    cases = xml.etree.ElementTree.parse(arguments[0]).getroot().iter("testcase")
    counts = collections.Counter()
    total = 0
    for case in cases:
        total += 1
        counts.update(skips_of(case))
    if not counts:
        print(f"{total} tests, nothing skipped")
        return 0
    print(f"{total} tests, {sum(counts.values())} tests or parts of tests skipped:")
    for (name, reason), count in sorted(counts.items()):
        print(f"  {name}{f' ({count} cases)' if count > 1 else ''}: {reason}")
    return 1 if "--expect-none" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
