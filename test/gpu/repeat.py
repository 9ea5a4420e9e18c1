#!/usr/bin/env python3
"""Deterministic training on a GPU repeats every bit: ten runs have equal hashes, and `heddle
verify` finds no difference.

The model is large enough for kernels to split their work over blocks, where the order of
additions can change from run to run. Usage: repeat.py HEDDLE [--runs=10]. Exit code 77: no GPU."""
import argparse
import hashlib
import os
import subprocess
import sys
import tempfile

import torch

JOB = ["--runtime.device=cuda", "--model=llama3", "--flavor=debugmodel", "--model.dim=768", "--model.n_layers=4",
       "--model.n_heads=12", "--model.n_kv_heads=4", "--model.ffn_dim=2048", "--model.vocab_size=32000",
       "--training.local_batch_size=8", "--training.seq_len=1024", "--training.steps=3", "--precision=bf16"]


def run(command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("heddle")
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("skipped: no GPU")
        return 77
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        digests = set()
        for number in range(options.runs):
            path = os.path.join(folder, "hashes.jsonl")
            done = run([options.heddle, "train", *JOB, "--training.dataset=synthetic", f"--hashes={path}"])
            if done.returncode != 0:
                sys.exit(f"run {number} ended with {done.returncode}:\n{done.stdout}")
            if "attention    flash" not in done.stdout:
                failures.append("the header does not name flash attention")
            with open(path, "rb") as file:
                digests.add(hashlib.sha256(file.read()).hexdigest())
        if len(digests) != 1:
            failures.append(f"{options.runs} runs gave {len(digests)} sets of hashes")
    for number in range(3):
        done = run([options.heddle, "verify", *JOB])
        if done.returncode != 0:
            failures.append(f"verify {number} ended with {done.returncode}:\n{done.stdout}")
    done = run([options.heddle, "train", *JOB, "--attention=cudnn"])
    if done.returncode != 1 or "--debug.deterministic=false" not in done.stdout:
        failures.append(f"--attention=cudnn in deterministic mode ended with {done.returncode}:\n{done.stdout}")
    for failure in failures:
        print(failure)
    print(f"{options.runs} runs, 3 verifications: {'failed' if failures else 'equal bits'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
