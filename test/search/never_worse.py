#!/usr/bin/env python3
"""A plan of `--parallelism.auto` is never slower, by simulation, than any preset on the same
mesh.

usage: never_worse.py HEDDLE [--all] [--memory.budget=71GiB] [FLAG...]

Prints the step time and peak memory of the found plan and of each preset, as a table for
docs/search.md. Without --all: small models, in seconds."""
import json
import subprocess
import sys
import time

SMALL = [
    ("llama3", "debugmodel", ["dp=8", "dp=4,tp=2", "dp=2,cp=4"]),
    ("qwen3", "debugmodel_moe", ["dp=4,tp=2"]),
]
# Presets of tensor parallelism divide the key and value heads: 4 in Qwen 3 30B-A3B, 8 or more elsewhere.
LARGE = [(model, flavor, ["dp=64", f"dp=8,tp={tp}", f"dp=32,tp={tp}"]) for model, flavor, tp in [
    ("llama3", "8B", 8), ("llama3", "70B", 8), ("qwen3", "32B", 8), ("qwen3", "30B-A3B", 4), ("deepseek_v3", "16B", 8)]]


def gib(count):
    return f"{count / 2**30:.1f} GiB"


def check(heddle, model, flavor, mesh, seq_len, flags):
    command = [heddle, "plan", f"--model={model}", f"--flavor={flavor}", f"--training.seq_len={seq_len}",
               "--parallelism.auto", f"--mesh={mesh}", "--with-optimizer", "--json", *flags]
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.monotonic() - begin
    if done.returncode != 0:
        print(f"| {model} {flavor} | `{mesh}` | exit {done.returncode}: {done.stderr.strip()} |", flush=True)
        # If automatic plans do not fit, no preset may fit.
        return done.returncode == 3
    found = json.loads(done.stdout)["auto"]
    tried = found["tried"]
    chosen = next(t for t in tried if t["name"] == found["chosen"])
    presets = [t for t in tried if " over " in t["name"]]
    others = "; ".join(f"{t['name']} {t['step_ms']:.1f} ms, {gib(t['peak_bytes'])}" for t in presets)
    print(f"| {model} {flavor} | `{mesh}` | {chosen['name']} | {chosen['step_ms']:.1f} ms, {gib(chosen['peak_bytes'])} "
          f"| {others} | {seconds:.1f} s |", flush=True)
    if not presets:
        print(f"no preset was tried on {mesh}")
        return False
    worse = [t["name"] for t in presets if t["step_ms"] < chosen["step_ms"]]
    for name in worse:
        print(f"{name} is faster than {chosen['name']}")
    return not worse


def main():
    arguments = sys.argv[1:]
    everything = "--all" in arguments
    heddle, *flags = [a for a in arguments if a != "--all"]
    print("| model | mesh | found | step, peak | presets | time |\n|---|---|---|---|---|---|", flush=True)
    good = True
    for model, flavor, meshes in LARGE if everything else SMALL:
        for mesh in meshes:
            good &= check(heddle, model, flavor, mesh, 4096 if everything else 256, flags)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
