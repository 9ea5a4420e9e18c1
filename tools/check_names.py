#!/usr/bin/env python3
"""Checks that a name is one type. The linker merges types with the same name, which corrupts
objects of one of them.

Compilers do not detect this, because no file includes both. Checks types in namespace heddle, in
headers and sources, outside unnamed namespaces."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TYPE = re.compile(r"^(?:struct|class|enum class|union) (?:alignas\(\S+\) )?(\w+)(?: final)?(?: :[^;]*)? ?\{")


def types(text):
    """Returns names and lines of the types that a file defines."""
    unnamed = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("namespace {"):
            unnamed = True
        elif unnamed and re.match(r"\}  // namespace$", line):
            unnamed = False
        found = None if unnamed else TYPE.match(line)
        if found:
            yield found.group(1), number


def main():
    where = {}
    for folder in ("heddle", "test", "bench", "fuzz"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in (".h", ".cc"):
                continue
            for name, line in types(path.read_text()):
                where.setdefault(name, []).append(f"{path.relative_to(ROOT)}:{line}")
    twice = {name: places for name, places in where.items() if len(places) > 1}
    for name, places in sorted(twice.items()):
        print(f"{name} is {len(places)} types: {', '.join(places)}")
    print(f"{len(where)} types, {len(twice)} names of several")
    return 1 if twice or not where else 0


if __name__ == "__main__":
    sys.exit(main())
