#!/usr/bin/env python3
"""Fails if a folder of heddle/ includes one that it may not: dependence goes one way.

The edges are those of docs/architecture.md. A folder may also include what its dependencies may. Folders in TORCH may
include libtorch; no other may.
"""
import pathlib
import re
import sys

ALLOWED = {
    "base": [],
    "solve/problem": ["base"],
    "solve/reduce": ["solve/problem"],
    "solve/search": ["solve/reduce"],
    "solve": ["solve/search"],
    "ir": ["base"],
    "ir/edit": ["ir"],
    "ir/text": ["ir/edit"],
    "ir/verify": ["ir/text"],
    "ir/test": ["ir/verify"],
    "ops": ["ir/verify"],
    "analysis": ["ops"],
    "cost/cluster": ["ir"],
    "cost/comm": ["cost/cluster", "ops"],
    "cost": ["cost/comm", "analysis"],
    "sim/timeline": ["cost"],
    "sim/explain": ["sim/timeline"],
    "sim": ["sim/explain"],
    "plan": ["ops"],
    "plan/presets": ["plan"],
    "shard": ["ops"],
    "pass": ["analysis"],
    "passes/clean": ["pass"],
    "passes/fsdp": ["pass", "plan"],
    "passes/memory": ["passes/fsdp", "solve"],
    "passes/overlap/order": ["passes/fsdp", "sim"],
    "passes/overlap/buckets": ["passes/overlap/order"],
    "passes/overlap/layers": ["passes/overlap/order"],
    "passes/overlap": ["passes/overlap/buckets", "passes/overlap/layers"],
    "passes/chunks": ["passes/overlap"],
    "passes/tokens": ["passes/chunks", "passes/memory"],
    "passes/parallel/redistribute": ["pass", "shard"],
    "passes/parallel/propagate": ["passes/parallel/redistribute", "plan"],
    "passes/parallel/lower": ["passes/parallel/redistribute"],
    "passes": ["passes/chunks", "passes/clean", "passes/fsdp", "passes/memory", "passes/overlap",
               "passes/parallel/lower", "passes/parallel/propagate", "passes/tokens"],
    "report": ["sim"],
    "report/html": ["report", "pass"],
    "import/read": ["ir"],
    "import": ["import/read", "ops"],
    "auto": ["passes", "cost", "solve"],
    "budget": ["passes", "report"],
    "compile": ["auto", "budget"],
    "search": ["compile", "plan/presets", "report/html"],
    "checkpoint": ["ir"],
    "cli": ["checkpoint", "compile", "import", "job", "launch", "metrics", "report/html"],
    "data": ["checkpoint"],
    "job": ["base"],
    "launch": ["base"],
    "metrics": ["base"],
    "aten": ["ops"],
    "capture": ["aten"],
    "models": ["capture", "data", "plan/presets"],
    "runtime": ["aten", "analysis"],
    "runtime/process": ["runtime"],
    "eager": ["models", "runtime"],
    "train": ["compile", "models", "runtime", "checkpoint"],
    "verify": ["train", "eager"],
    "hf": ["train"],
    "cli/torch": ["cli", "hf", "runtime/process", "search", "verify"],
    "cli/torch/plan": ["cli/torch"],
    "cli/torch/train": ["cli/torch/plan"],
    "cli/torch/verify": ["cli/torch/train"],
}
TORCH = ["aten", "capture", "models", "runtime", "runtime/process", "eager", "train", "verify", "hf", "cli/torch", "cli/torch/plan",
         "cli/torch/train", "cli/torch/verify"]
# Above everything: may include any folder, and nothing includes them.
TOP = ["test", "bench", "fuzz"]

INCLUDE = re.compile(r'^\s*#include\s+[<"]([^">]+)[">]', re.M)


def reachable(folder):
    seen, open_folders = {folder}, [folder]
    while open_folders:
        for below in ALLOWED[open_folders.pop()]:
            if below not in seen:
                seen.add(below)
                open_folders.append(below)
    return seen


def folder_of(path):
    """The folder of heddle/ that a path below heddle/ belongs to: the longest that is listed."""
    parts = pathlib.PurePosixPath(path).parts[:-1]
    for n in range(len(parts), 0, -1):
        if "/".join(parts[:n]) in ALLOWED:
            return "/".join(parts[:n])
    return None


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    problems = []
    files = sorted(p for p in (root / "heddle").rglob("*") if p.suffix in (".h", ".cc", ".def"))
    for path in files:
        relative = path.relative_to(root / "heddle").as_posix()
        folder = folder_of(relative)
        if folder is None:
            problems.append(f"heddle/{relative}: its folder is not listed in {pathlib.Path(__file__).name}")
            continue
        allowed = reachable(folder)
        for include in INCLUDE.findall(path.read_text()):
            if include.startswith("heddle/"):
                target = folder_of(include.removeprefix("heddle/"))
                if target not in allowed:
                    problems.append(f"heddle/{relative}: {folder} may not include {target} ({include})")
            elif re.match(r"(torch|ATen|c10)/", include) and folder not in TORCH:
                problems.append(f"heddle/{relative}: {folder} may not include libtorch ({include})")
            elif include.split("/")[0] in TOP:
                problems.append(f"heddle/{relative}: nothing includes {include}")
    print("\n".join(problems) if problems else f"{len(files)} files, every include goes down")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
