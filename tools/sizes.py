#!/usr/bin/env python3
"""Measures files and functions against the limits of CONTRIBUTING.md. Lists those above a soft
limit, and fails above a hard one.

Tables are exempt: .def files, the op entries in the family files, and functions that bind a class
for Python."""
import pathlib
import re
import sys

# kind: (soft, hard)
LIMITS = {"file": (400, 800), "pass": (300, 600), "header": (200, 400), "function": (50, 100), "golden": (150, 1200)}
# Modules of a folder of heddle/: a .cc and its .h count once, tests do not.
MOST_MODULES = 20


def functions(text):
    """Returns (name, first line, lines) of each function body: a line that ends a signature with
    a brace."""
    lines = text.split("\n")
    i = 0
    while i < len(lines):
        line = lines[i]
        opens = re.match(r"^( {0,4})[A-Za-z_~].*\) ?(const)? ?(override)? ?(->.*)? ?\{$", line)
        keyword = re.match(r"\s*(if|for|while|switch|else|do|namespace|return)\b", line)
        if not opens or keyword:
            i += 1
            continue
        # A lambda that is an argument ends with the call.
        close = re.compile(opens.group(1) + r"\}(;|\).*)?$")
        end = next((j for j in range(i + 1, len(lines)) if close.match(lines[j])), i)
        name = re.search(r"([\w:~]+)\(", line)
        yield (name.group(1) if name else "?"), i + 1, end - i + 1
        i += 1


def kind_of(path):
    if path.suffix == ".hdt":
        return "golden"
    if path.suffix == ".h":
        return "header"
    return "pass" if "passes" in path.parts and path.suffix == ".cc" else "file"


def crowded_folders(root):
    modules = {}
    for path in root.rglob("*"):
        is_test = path.parent.name == "test" or path.stem.endswith("_test")
        if path.suffix in (".h", ".cc") and not is_test:
            modules.setdefault(path.parent, set()).add(path.stem)
    return [f"folder of {len(stems)} modules, at most {MOST_MODULES}: "
            f"{folder.relative_to(root.parent)}"
            for folder, stems in sorted(modules.items()) if len(stems) > MOST_MODULES]


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    failed, listed = crowded_folders(root / "heddle"), []
    total, ops, passes, flags = 0, 0, 0, 0
    for top in ("heddle", "test", "bench", "fuzz", "tools"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in (".h", ".cc", ".py", ".hdt", ".def"):
                continue
            text = path.read_text()
            relative = path.relative_to(root)
            if path.suffix == ".def":
                ops += len(re.findall(r"^HEDDLE_OP\(", text, re.M))
                passes += len(re.findall(r"^HEDDLE_PASS\(", text, re.M))
                continue
            if path.suffix in (".h", ".cc"):
                flags += len(re.findall(r"flags\.(Switch|Option)\(", text))
            count = sum(1 for l in text.split("\n")[:-1] if not l.startswith("HEDDLE_DEFINE_OP("))
            if path.suffix != ".hdt":
                total += count
            measured = [(kind_of(relative), str(relative), count)]
            if path.suffix == ".cc":
                binds = relative.parent.name == "python"
                measured += [("function", f"{relative}:{line} {name}", n) for name, line, n in functions(text)
                             if not (binds and name.startswith("Bind"))]
            for kind, what, n in measured:
                soft, hard = LIMITS[kind]
                if n > hard:
                    failed.append(f"{kind} of {n} lines, at most {hard}: {what}")
                elif n > soft:
                    listed.append(f"{kind} of {n} lines, better at most {soft}: {what}")
    for line in listed + failed:
        print(line)
    print(f"{total} lines, {ops} ops, {passes} passes, {flags} flags; {len(listed)} over a soft limit, {len(failed)} over a hard one")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
