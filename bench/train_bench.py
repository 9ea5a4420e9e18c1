#!/usr/bin/env python3
"""Measures the cost of data, logs and checkpoints in a run of the debug model: train_bench.py
HEDDLE OUT.json [--rounds=5] [--steps=10]

Alternates runs of ten steps on four ranks: bare, with all logs, and with an asynchronous
checkpoint per step. The run reports the time of its data."""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

JOB = ["--model=llama3", "--flavor=debugmodel", "--precision=f32", "--parallelism.data_parallel_shard_degree=4", "--training.seq_len=64",
       "--training.local_batch_size=1"]
# Maximum share of a bare run's time.
GOALS = {"data": 0.01, "logs": 0.01, "checkpoints": 0.10}


def seconds(heddle, steps, flags):
    begin = time.monotonic()
    subprocess.run([heddle, "train", *JOB, f"--training.steps={steps}", *flags], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("heddle")
    parser.add_argument("out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    took = {"bare": [], "logs": [], "checkpoints": []}
    data = []
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory() as folder:
            jsonl = f"{folder}/metrics.jsonl"
            took["bare"].append(seconds(args.heddle, args.steps, ["--training.dataset=synthetic", f"--metrics.log_freq={args.steps}"]))
            took["logs"].append(seconds(args.heddle, args.steps, ["--training.dataset=synthetic", f"--metrics.jsonl={jsonl}",
                                                                  f"--metrics.tensorboard={folder}/events"]))
            took["checkpoints"].append(seconds(args.heddle, args.steps, ["--training.dataset=synthetic", f"--metrics.log_freq={args.steps}",
                                                                         f"--checkpoint.folder={folder}/saved", "--checkpoint.interval=1"]))
            rows = [json.loads(line) for line in pathlib.Path(jsonl).read_text().splitlines()]
            data.append(sum(row["data_seconds"] for row in rows) / sum(row["seconds"] for row in rows))
    middle = {name: statistics.median(values) for name, values in took.items()}
    shares = {"data": statistics.median(data), **{name: middle[name] / middle["bare"] - 1 for name in ("logs", "checkpoints")}}
    pathlib.Path(args.out).write_text(json.dumps({"shares": shares, "seconds": took}, indent=1) + "\n")
    print(f"train bare         {middle['bare']:8.2f} s for {args.steps} steps")
    for name, share in shares.items():
        print(f"train {name:<12} {100 * share:8.2f} % on top, goal {100 * GOALS[name]:.0f} %")
    return 1 if any(shares[name] > goal for name, goal in GOALS.items()) else 0


if __name__ == "__main__":
    sys.exit(main())
