#!/usr/bin/env python3
"""Measures the speed of saving and reading checkpoints, alternating with dd and fsync on the
same disk.

    checkpoint_bench.py SPEED OUT.json [--mib=1024] [--rounds=5] [--folder=build]

A save lasts until the step has its final name: hashed, synced and read back from the disk. A
read starts with a cold cache and reads all hashes, then all bytes.

Both write next to an existing file: the checkpoint its second step, dd its second file. The
times do not include the removal of old files."""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

# Minimum share of dd's speed.
GOAL = 0.70


def dd(path, mib):
    begin = time.monotonic()
    subprocess.run(["dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={mib}", "conv=fsync"], check=True, stderr=subprocess.DEVNULL)
    return time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("speed")
    parser.add_argument("out")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default="build")
    args = parser.parse_args()
    rates = {"dd": [], "write": [], "read": [], "copy": []}
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            dd(f"{folder}/first", args.mib)
            rates["dd"].append(args.mib / dd(f"{folder}/second", args.mib))
            said = subprocess.run([args.speed, f"{folder}/out", str(args.mib)], check=True, capture_output=True, text=True)
            _, save, read = [json.loads(line) for line in said.stdout.splitlines()]
            rates["write"].append(args.mib / save["write_s"])
            rates["copy"].append(args.mib / save["copy_s"])
            rates["read"].append(args.mib / (read["open_s"] + read["read_s"]))
    middle = {name: statistics.median(values) for name, values in rates.items()}
    pathlib.Path(args.out).write_text(json.dumps({"MiB/s": middle, "rounds": rates}, indent=1) + "\n")
    below = False
    for name, rate in middle.items():
        share = rate / middle["dd"]
        said = "" if name in ("dd", "copy") else f"  {100 * share:.0f} % of dd, goal {100 * GOAL:.0f} %"
        below |= bool(said) and share < GOAL
        print(f"checkpoint {name:<6} {rate:8.0f} MiB/s{said}")
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
