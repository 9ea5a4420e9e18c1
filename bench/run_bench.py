#!/usr/bin/env python3
"""Compares the runtime with PyTorch: run_bench.py HEDDLE_RUN_BENCH OUT.json

PyTorch trains the same step of Llama 3's debug model from Python: forward, backward, clipping
and fused AdamW, in one thread, with the same kernels (oneDNN is off in both, as in exact
training). Both run alternately, and the minimum time of each counts."""
import json
import os
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "test", "oracle"))
import fsdp2  # noqa: E402

# Precision, tokens of each rank's sequence, steps per turn.
STEPS = [("f32", 64, 20), ("f32", 512, 6)]
TURNS = 3


def run(program, *args):
    done = subprocess.run([program, *map(str, args)], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(map(str, args))} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


class Eager:
    """The step as a user writes it. For bf16, the step casts weights, as FSDP2 does."""

    def __init__(self, precision, seq_len):
        self.job = fsdp2.Job("bench", seq_len=seq_len, sizes=fsdp2.DEBUG, precision=precision)
        self.model = fsdp2.Llama3(self.job.sizes, seq_len)
        self.params = dict(self.model.named_parameters())
        self.optimizer = torch.optim.AdamW(self.params.values(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        self.steps = 0

    def step(self):
        self.steps += 1
        tokens, labels = fsdp2.make_batch(self.job, self.steps, 0)
        begin = time.perf_counter()
        self.optimizer.zero_grad()
        if self.job.precision == "bf16":
            logits = torch.func.functional_call(self.model, {n: p.to(torch.bfloat16) for n, p in self.params.items()}, (tokens,))
        else:
            logits = self.model(tokens)
        loss = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), reduction="sum") / float(labels.numel())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.params.values(), 1.0)
        self.optimizer.step()
        return time.perf_counter() - begin


def show(name, value, goal, good):
    print(f"{name:66}{value}   goal {goal}{'' if good else '  over the goal'}")


def main():
    program, out = sys.argv[1:3]
    torch.set_num_threads(1)
    torch._C._set_mkldnn_enabled(False)
    report = {}

    dispatch = run(program, "dispatch")
    extra = dispatch["program_us"] - dispatch["kernels_us"]
    show("dispatch of a node on top of its kernel", f"{extra:.2f} us ({dispatch['program_us']:.2f} - {dispatch['kernels_us']:.2f})", "1.3 us", extra <= 1.3)
    report["dispatch"] = {**dispatch, "extra_us": extra}

    report["steps"] = []
    for precision, seq_len, steps in STEPS:
        eager = Eager(precision, seq_len)
        theirs, ours = [], []
        for _ in range(TURNS):
            ours.append(run(program, "step", precision, seq_len, 1, steps)["seconds"])
            theirs.append(min(eager.step() for _ in range(steps)))
        ratio = min(theirs) / min(ours)
        show(f"llama3 debugmodel step, 1 x {seq_len}, {precision}: times faster than PyTorch",
             f"{ratio:.2f} ({min(theirs) * 1e3:.1f} ms / {min(ours) * 1e3:.1f} ms)", "1.2", ratio >= 1.2)
        report["steps"].append({"precision": precision, "seq_len": seq_len, "pytorch_seconds": min(theirs), "heddle_seconds": min(ours)})

    one, eight = [], []
    for _ in range(TURNS):
        one.append(run(program, "step", "f32", 128, 1, 10)["seconds"])
        eight.append(run(program, "step", "f32", 128, 8, 3)["seconds"])
    ratio = min(eight) / min(one)
    show("eight ranks in lockstep, in steps of one rank, 1 x 128, f32", f"{ratio:.2f} ({min(eight) * 1e3:.1f} ms / {min(one) * 1e3:.1f} ms)", "8.5", ratio <= 8.5)
    report["lockstep"] = {"one_seconds": min(one), "eight_seconds": min(eight)}

    gather = run(program, "gather")
    ratio = gather["bucket_seconds"] / gather["bare_seconds"]
    show(f"bucketed all-gather of {gather['mib']:.0f} MiB between 2 processes, in bare calls",
         f"{ratio:.3f} ({gather['bucket_seconds'] * 1e3:.1f} ms / {gather['bare_seconds'] * 1e3:.1f} ms)", "1.05", ratio <= 1.05)
    report["gather"] = gather
    with open(out, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
