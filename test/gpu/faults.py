#!/usr/bin/env python3
"""Runs on a GPU that are stopped, resumed, disturbed or too large have the bits and exit codes of
undisturbed runs.

Usage: faults.py HEDDLE. Exit code 77: no GPU.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile

import torch

JOB = ["--runtime.device=cuda", "--model=llama3", "--precision=bf16", "--model.vocab_size=16384", "--training.dataset=synthetic",
       "--training.local_batch_size=2", "--training.seq_len=256", "--lr_scheduler.warmup_steps=2"]
# The logits are so large that copies of weights do not raise the peak of memory: AdamW writes the bf16 weights of the next step.
COPIES = ["--training.seq_len=1024"]
# Every op through ATen, one after the other.
PLAIN = ["--runtime.graph=off", "--runtime.kernels=off"]
# A process that keeps the GPU busy and takes memory.
BUSY = """
import torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
print("busy", flush=True)
while True:
    for _ in range(20):
        b = a @ a
    torch.cuda.synchronize()
"""


class Failed(Exception):
    pass


def check(condition, what):
    if not condition:
        raise Failed(what)


def train(heddle, flags, expect=0):
    """The later of two flags of one name counts."""
    by_name = {flag.split("=")[0]: flag for flag in [*JOB, *flags]}
    done = subprocess.run([heddle, "train", *by_name.values()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check(done.returncode == expect, f"train {' '.join(flags)} ended with {done.returncode}, expected {expect}:\n{done.stdout[-3000:]}")
    return done.stdout


def hashes(heddle, folder, steps, flags):
    """Lines of the last step."""
    path = os.path.join(folder, "hashes.jsonl")
    train(heddle, [f"--training.steps={steps}", f"--hashes={path}", *flags])
    with open(path) as file:
        return [line for line in file if json.loads(line)["step"] == steps]


def losses(heddle, folder, steps, flags, expect=0):
    path = os.path.join(folder, "steps.jsonl")
    if os.path.exists(path):
        os.remove(path)
    text = train(heddle, [f"--training.steps={steps}", f"--metrics.jsonl={path}", *flags], expect)
    with open(path) as file:
        return [json.loads(line)["loss"] for line in file], text


def resumed_runs_have_the_same_bits(heddle, folder):
    """Steps are launched before the loss of the last one is known, except for those that are
    saved."""
    expected = hashes(heddle, folder, 16, [*COPIES, *PLAIN])
    saved = [*COPIES, f"--checkpoint.folder={folder}/resumed", "--checkpoint.interval=4"]
    train(heddle, ["--training.steps=10", *saved])
    check(hashes(heddle, folder, 16, saved) == expected, "a resumed run has other bits")
    check(losses(heddle, folder, 14, [])[0] == losses(heddle, folder, 14, PLAIN)[0], "a replayed run has other losses")


def signals_end_a_run_in_order(heddle, folder):
    for sent in (signal.SIGTERM, signal.SIGINT):
        saved = [f"--checkpoint.folder={folder}/{sent.name}"]
        run = subprocess.Popen([heddle, "train", *JOB, "--training.steps=100000", *saved], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True)
        for line in run.stdout:
            if "step: 40 " in line or "step:    40" in line or "step:  40" in line:
                break
        run.send_signal(sent)
        text, _ = run.communicate(timeout=120)
        check(run.returncode == 0, f"{sent.name}: exit code {run.returncode}:\n{text[-2000:]}")
        listed = json.loads(subprocess.run([heddle, "checkpoint", "ls", f"{folder}/{sent.name}", "--json"], stdout=subprocess.PIPE,
                                           text=True).stdout)
        step = max(row["step"] for row in (listed["checkpoints"] if isinstance(listed, dict) else listed))
        check(step >= 40, f"{sent.name}: saved at step {step}")
        check(hashes(heddle, folder, step + 1, saved) == hashes(heddle, folder, step + 1, PLAIN),
              f"{sent.name}: a run that was stopped at step {step} and resumed has other bits")


def a_loss_that_is_not_finite_ends_a_run(heddle, folder):
    high = ["--optimizer.lr=1e30"]
    for action in ("stop", "skip"):
        flags = [*high, f"--fault.on_nan={action}"]
        code = 4 if action == "stop" else 0
        graph, text = losses(heddle, folder, 9, flags, code)
        plain, _ = losses(heddle, folder, 9, [*flags, *PLAIN], code)
        check([str(a) for a in graph] == [str(b) for b in plain], f"{action}: losses {graph}, of launches {plain}")
        check(any(word in text for word in ("nan", "inf")), f"{action}: no step was NaN:\n{text[-2000:]}")


def steps_that_are_taken_back_change_no_bits(heddle, folder):
    """Random tokens keep the loss near the logarithm of the vocabulary, so every loss after the first 20 counts as a spike. The bf16
    weights that AdamW wrote in such a step must be written again."""
    for batches in ([], ["--training.global_batch_size=8"]):
        flags = ["--fault.on_spike=skip", "--fault.spike_factor=0.9", *COPIES, *batches]
        graph, text = losses(heddle, folder, 26, flags)
        plain, _ = losses(heddle, folder, 26, [*flags, *PLAIN])
        check(text.count("the step is skipped") == 6, f"not the last 6 of 26 steps were taken back:\n{text[-2000:]}")
        check(graph == plain, f"{batches}: losses {graph}, of launches {plain}")


def a_job_that_is_too_large_says_what_it_needs(heddle, folder):
    text = train(heddle, ["--training.local_batch_size=4096", "--training.seq_len=8192", "--training.steps=2"], expect=3)
    check("training needs at least" in text and "the largest tensors" in text, text)


def other_work_changes_no_bits(heddle, folder):
    expected = hashes(heddle, folder, 8, PLAIN)
    other = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True)
    try:
        other.stdout.readline()
        check(hashes(heddle, folder, 8, []) == expected, "other work on the GPU changes bits")
    finally:
        other.kill()
        other.wait()


def main():
    heddle = sys.argv[1]
    if not torch.cuda.is_available():
        print("skipped: no GPU")
        return 77
    tests = [resumed_runs_have_the_same_bits, signals_end_a_run_in_order, a_loss_that_is_not_finite_ends_a_run,
             steps_that_are_taken_back_change_no_bits, a_job_that_is_too_large_says_what_it_needs, other_work_changes_no_bits]
    failures = 0
    for test in tests:
        with tempfile.TemporaryDirectory() as folder:
            try:
                test(heddle, folder)
                print(f"{test.__name__}: ok", flush=True)
            except (Failed, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
                failures += 1
                print(f"{test.__name__}: {error}", flush=True)
    print(f"{len(tests)} tests: {f'{failures} failed' if failures else 'ok'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
