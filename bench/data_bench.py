#!/usr/bin/env python3
"""Rows per second of Heddle's data and of PyTorch's DataLoader: data_bench.py SPEED [RESULT]
[--mib=256]

Both read the same memory-mapped file of 16-bit tokens, whole epochs in random order, as tokens and
labels of 64 bits. The DataLoader runs without workers and with two. A mixture of two files is
compared with a WeightedRandomSampler. All take turns, and the best time of each counts. The sums of
an epoch show that both read the same rows."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, WeightedRandomSampler

# Tokens of a row, rows of a batch.
SHAPES = [(1024, 64), (8192, 8)]
TURNS = 3
GOAL = 1.0


class Rows(Dataset):
    def __init__(self, path, length):
        self.tokens = np.memmap(path, np.uint16, "r")
        self.length = length

    def __len__(self):
        return (len(self.tokens) - 1) // self.length

    def __getitem__(self, row):
        begin = row * self.length
        tokens = torch.from_numpy(self.tokens[begin:begin + self.length + 1].astype(np.int64))
        return tokens[:-1], tokens[1:]


def loader(paths, length, batch, workers):
    datasets = [Rows(path, length) for path in paths]
    options = {"batch_size": batch, "num_workers": workers, "persistent_workers": workers > 0}
    if len(datasets) == 1:
        return DataLoader(datasets[0], shuffle=True, **options)
    weights = [share / len(rows) for share, rows in zip((0.7, 0.3), datasets) for _ in range(len(rows))]
    return DataLoader(ConcatDataset(datasets), sampler=WeightedRandomSampler(weights, len(weights)), **options)


def seconds_of(batches):
    begin = time.perf_counter()
    rows = sum(len(tokens) for tokens, _ in batches)
    return (time.perf_counter() - begin) / rows


def sum_of(batches, length):
    """That of data_speed.cc."""
    positions = torch.arange(1, length + 1)
    return sum(int(((tokens + 3 * labels) * positions).sum()) for tokens, labels in batches) % 2**64


def heddle(program, paths, length, batch, steps):
    source = paths[0] if len(paths) == 1 else f"{paths[0]}:0.7,{paths[1]}:0.3"
    done = subprocess.run([program, source, *map(str, (length, batch, steps))], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    return found["seconds"] / (steps * batch), found["sum"]


def compare(program, paths, length, batch):
    loaders = {workers: loader(paths, length, batch, workers) for workers in (0, 2)}
    steps = len(loaders[0])
    times = {name: [] for name in (0, 2, "heddle")}
    for _ in range(TURNS):
        for workers, batches in loaders.items():
            times[workers].append(seconds_of(batches))
        seconds, total = heddle(program, paths, length, batch, steps)
        times["heddle"].append(seconds)
    if len(paths) == 1 and total != sum_of(loaders[0], length):
        sys.exit(f"{length} tokens: the epochs have other rows")
    return {str(name): 1 / min(values) for name, values in times.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("speed")
    parser.add_argument("result", nargs="?")
    parser.add_argument("--mib", type=int, default=256)
    args = parser.parse_args()
    # On machines with fewer than two cores.
    warnings.filterwarnings("ignore", message=".*worker processes.*")
    results = {}
    below = False
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/a.bin", f"{folder}/b.bin"]
        random = np.random.default_rng(1)
        for path, share in zip(paths, (0.75, 0.25)):
            # Whole batches of every shape, and the last label.
            count = int(args.mib * share * 2**19) // 2**16 * 2**16 + 1
            random.integers(0, 50000, count, dtype=np.uint16).tofile(path)
        for length, batch in SHAPES:
            for name, files in (("one file", paths[:1]), ("mixture", paths)):
                rates = compare(args.speed, files, length, batch)
                ratio = rates["heddle"] / max(rates["0"], rates["2"])
                below |= ratio < GOAL
                results[f"{name}, {length} tokens"] = {"rows_per_second": rates, "ratio": ratio}
                print(f"data, {name}, rows of {length} tokens: DataLoader {rates['0']:,.0f} rows/s, {rates['2']:,.0f} with 2 workers; "
                      f"heddle {rates['heddle']:,.0f}, {ratio:.1f} times as fast   goal {GOAL}")
    if args.result:
        pathlib.Path(args.result).write_text(json.dumps(results, indent=2) + "\n")
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
