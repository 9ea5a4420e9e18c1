#!/usr/bin/env python3
"""Tuned matrix products have the bits of ATen's, also where files of the cache are damaged, and the
launches of a step can be measured.

Usage: tune.py HEDDLE. Exit code 77: no GPU."""
import glob
import json
import os
import subprocess
import sys
import tempfile

import torch

MODEL = ["--runtime.device=cuda", "--model=llama3", "--precision=bf16", "--model.dim=768", "--model.n_layers=2", "--model.vocab_size=16384",
         "--training.local_batch_size=4", "--training.seq_len=1024"]


def run(command, folder):
    environment = {**os.environ, "XDG_CACHE_HOME": folder}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout, done.stderr


def train(heddle, folder, flags=()):
    path = os.path.join(folder, "hashes.jsonl")
    text, _ = run([heddle, "train", *MODEL, "--training.dataset=synthetic", "--training.steps=5", f"--hashes={path}", *flags], folder)
    with open(path) as file:
        return file.read(), text


def main():
    heddle = sys.argv[1]
    if not torch.cuda.is_available():
        print("skipped: no GPU")
        return 77
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        expected, _ = train(heddle, folder, ["--runtime.kernels=off"])
        products = json.loads(run([heddle, "tune", *MODEL, "--json"], folder)[0])["products"]
        faster = [p for p in products if p["best_us"] < p["aten_us"]]
        print(f"{len(products)} shapes, {len(faster)} with a faster algorithm", flush=True)
        if not products or any(p["best_us"] > p["aten_us"] or p["best_us"] <= 0 for p in products):
            failures.append(f"times of products are wrong: {products}")
        again = json.loads(run([heddle, "tune", *MODEL, "--json"], folder)[0])["products"]
        if len(again) != len(products) or any(abs(a["aten_us"] - p["aten_us"]) > 1e-3 for a, p in zip(again, products)):
            failures.append("a second call measures again")
        tuned, text = train(heddle, folder)
        if tuned != expected:
            failures.append("tuned products change bits")
        if "is not used" in text:
            failures.append(f"a tuned product is not used:\n{text}")
        files = glob.glob(os.path.join(folder, "heddle", "kernels", "*.matmul"))
        if len(files) != len(products):
            failures.append(f"{len(files)} files for {len(products)} shapes")
        for i, path in enumerate(files):
            with open(path, "r+b") as file:
                data = file.read()
                file.seek(0)
                file.truncate()
                file.write(data[: len(data) // 2] if i % 2 else data.replace(b"0", b"1"))
        if train(heddle, folder)[0] != expected:
            failures.append("damaged files change bits")
        kernels = json.loads(run([heddle, "kernels", *MODEL, "--measure", "--json"], folder)[0])["kernels"]
        missing = [k["name"] for k in kernels if k["measured_us"] is None]
        slow = sum(k["measured_us"] or 0 for k in kernels)
        print(f"{len(kernels)} launches in {slow / 1000:.2f} ms, {len(missing)} not measured: {sorted(set(missing))}", flush=True)
        if len(missing) > len(kernels) // 20 or not 0 < slow < 1e6:
            failures.append(f"launches are not measured: {missing}")
    print("\n".join(failures) if failures else "tuned products have ATen's bits")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
