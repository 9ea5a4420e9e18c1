#!/usr/bin/env python3
"""Time and peak memory of a training step on one GPU: Heddle, PyTorch eager and torch.compile.

All train the same model with f32 parameters, bf16 compute, f32 gradients, clipping and fused AdamW.
Blocks of Heddle and of its rivals alternate; each number is that of the best block. Heddle's time
is the median over steps, from the start of a step until its loss is known. The rivals' time is the
mean over steps, and they read no loss. `heddle tune` runs once before the blocks. Heddle's own
kernels have the bits of eager (`heddle verify`).

    python3 bench/gpu_step.py [--heddle build/heddle] [--models 160M,1.5B,0.6B] [--rivals default,...]
        [--deterministic]

`--deterministic`: Heddle repeats its bits from run to run, with flash attention. The rivals use
flash attention then; their bits do not repeat.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
# The same sizes as in gpu/rivals.py, under the same names.
MODELS = {
    "160M": dict(dim=768, n_layers=12, n_heads=12, n_kv_heads=4, ffn_dim=2048, vocab_size=32000, batch=8, length=1024, steps=60),
    "1.5B": dict(dim=2048, n_layers=16, n_heads=32, n_kv_heads=8, ffn_dim=8192, vocab_size=128256, batch=4, length=4096, steps=20),
    # Qwen 3, whose sizes Heddle knows.
    "0.6B": dict(batch=8, length=2048, steps=24),
}
GOALS = {"160M": 13.5, "1.5B": 240}
# Steps that warm up, record a CUDA graph, or run while clocks change.
SKIPPED = 8


def run(command, cache):
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}")
    return done.stdout


def job(name):
    model = MODELS[name]
    sizes = [f"--model.{key}={value}" for key, value in model.items() if key not in ("batch", "length", "steps")]
    family = ["--model=llama3", *sizes] if sizes else ["--model=qwen3", f"--flavor={name}"]
    return [*family, "--precision=bf16", "--runtime.device=cuda", f"--training.local_batch_size={model['batch']}",
            f"--training.seq_len={model['length']}"]


def train(heddle, name, flags, cache):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "steps.jsonl")
        text = run([heddle, "train", *job(name), "--training.dataset=synthetic", f"--training.steps={MODELS[name]['steps']}",
                    f"--metrics.jsonl={path}", *flags], cache)
        with open(path) as file:
            rows = [json.loads(line) for line in file]
    memory = re.findall(r"memory: +([\d.]+)GiB", text)
    times = [row["seconds"] * 1e3 for row in rows[SKIPPED:]]
    return statistics.median(times), float(memory[-1]) if memory else None


def rival(name, attention, mode):
    done = subprocess.run([sys.executable, os.path.join(HERE, "gpu", "rivals.py"), name, attention, mode], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, cwd=os.path.join(HERE, "gpu"))
    found = re.search(r"wall ms ([\d.]+).*peak ([\d.]+) GiB", done.stdout)
    if not found:
        print(f"{name} {mode} failed:\n{done.stdout[-2000:]}", file=sys.stderr)
        return None, None
    return float(found[1]), float(found[2])


def machine():
    import torch
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu = subprocess.run(query, stdout=subprocess.PIPE, text=True).stdout.strip()
    return f"{gpu}; torch {torch.__version__}; CUDA {torch.version.cuda}; cuDNN {torch.backends.cudnn.version()}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heddle", default=os.path.join(HERE, "..", "build", "heddle"))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rivals", default="eager,default,reduce-overhead")
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--deterministic", action="store_true")
    arguments = parser.parse_args()
    print(machine())
    attention = "flash" if arguments.deterministic else "cudnn"
    order = [] if arguments.deterministic else ["--debug.deterministic=false"]
    caches = tempfile.TemporaryDirectory()
    plain, tuned = (os.path.join(caches.name, cache) for cache in ("plain", "tuned"))
    ours = {"Heddle, ATen's kernels": ([*order, "--runtime.kernels=off"], plain), "Heddle": (order, plain),
            "Heddle, tuned": (order, tuned)}
    for name in arguments.models.split(","):
        best = {}
        print(run([arguments.heddle, "tune", *job(name), *order], tuned), flush=True)
        for _ in range(arguments.blocks):
            for label, (flags, cache) in ours.items():
                best.setdefault(label, []).append(train(arguments.heddle, name, flags, cache))
            for mode in arguments.rivals.split(","):
                best.setdefault(f"PyTorch {'eager' if mode == 'eager' else 'compile, ' + mode}", []).append(rival(name, attention, mode))
        print(f"\n| {name} | ms per step | peak GiB |\n|---|--:|--:|")
        for label, blocks in best.items():
            blocks = [block for block in blocks if block[0] is not None]
            if not blocks:
                print(f"| {label} | failed | |")
                continue
            time, memory = min(blocks)
            spread = max(block[0] for block in blocks) - time
            print(f"| {label} | {time:.2f} (blocks differ by {spread:.2f}) | {memory} |", flush=True)
        if name in GOALS and not arguments.deterministic:
            print(f"| goal | {GOALS[name]} | |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
