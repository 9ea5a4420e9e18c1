#!/usr/bin/env python3
"""Training on a GPU has the bits of eager training there.

Usage: verify.py HEDDLE [--all] [--only TEXT] [--jobs N]. Exit code 77: no GPU. The default is 4
steps of one job for each kind of ranks in one process. --all runs 20 steps of every model family
in both precisions, with and without CUDA graphs, accumulation, checkpointing and a budget, and
every schedule of pipelines."""
import argparse
import itertools
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import torch

SMALL = ["--model=llama3", "--flavor=debugmodel"]
EXPERTS = ["--model=qwen3", "--flavor=debugmodel_moe"]
MODELS = {"llama3": SMALL, "qwen3": ["--model=qwen3", "--flavor=debugmodel"], "experts": EXPERTS,
          **{family: [f"--model={family}", "--flavor=debugmodel"]
             for family in ("deepseek_v3", "gemma2", "gemma3", "gpt2", "gpt_oss")}}
SCHEDULES = ("GPipe", "ZB-H1", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "DualPipeV")
DP2, DP4 = ([f"--parallelism.data_parallel_shard_degree={degree}"] for degree in (2, 4))
DOCUMENTS = "--training.document_attention"
BF16, F32 = "--precision=bf16", "--precision=f32"
# How a rank runs a step. The budget follows from the step.
WAYS = {"": [], "graphs off": ["--runtime.graph=off"], "kernels off": ["--runtime.kernels=off"],
        "accumulation": ["--training.global_batch_size=4"], "checkpointing": ["--activation_checkpoint.mode=full"],
        "budget": [], "4 ranks": DP4}


def pipeline(degree, schedule, *flags):
    return [*SMALL, "--model.n_layers=8", f"--parallelism.pipeline_parallel_degree={degree}",
            f"--parallelism.pipeline_parallel_schedule={schedule}", "--training.local_batch_size=8", "--training.seq_len=64", *flags]


def context(degree, method, *flags):
    return [f"--parallelism.context_parallel_degree={degree}", f"--parallelism.context_parallel_method={method}",
            "--training.seq_len=128", *flags]


JOBS = {
    "pp=2, 1F1B, bf16": pipeline(2, "1F1B", BF16),
    "pp=4, ZBV, bf16": pipeline(4, "ZBV", BF16),
    "pp=2 x dp=2, ZBV, f32": pipeline(2, "ZBV", F32, *DP2),
    "cp=2, all-gather": context(2, "allgather", BF16, *SMALL),
    "cp=4, all-gather": context(4, "allgather", BF16, *SMALL),
    "cp=2, ulysses": context(2, "ulysses", BF16, *SMALL),
    "cp=2 x dp=2, qwen3": context(2, "allgather", BF16, *DP2, "--model=qwen3", "--flavor=debugmodel"),
    "tp=2 x dp=2": [*SMALL, BF16, *DP2, "--parallelism.tensor_parallel_degree=2", "--training.seq_len=64"],
    "documents": [*SMALL, BF16, DOCUMENTS, "--training.seq_len=128", "--training.local_batch_size=2"],
    "documents, cp=2": context(2, "allgather", BF16, DOCUMENTS, *SMALL),
    "documents, cp=2, in order": context(2, "allgather", BF16, DOCUMENTS, *SMALL, "--parallelism.context_parallel_load_balancer=none"),
    "documents, cp=2, ulysses": context(2, "ulysses", BF16, DOCUMENTS, *SMALL),
    "documents, cp=2, deepseek_v3": context(2, "allgather", BF16, DOCUMENTS, *MODELS["deepseek_v3"]),
    "ep=2 x dp=2": [*EXPERTS, BF16, *DP2, "--parallelism.expert_parallel_degree=2", "--training.seq_len=64"],
}


def all_jobs(heddle):
    jobs = dict(JOBS)
    for (model, flags), precision, (way, more) in itertools.product(MODELS.items(), (BF16, F32), WAYS.items()):
        length = 1024 if way == "budget" else 256
        step = [*flags, precision, "--training.local_batch_size=2", f"--training.seq_len={length}", *more]
        if way == "budget":
            less = peak(heddle, [*step, "--activation_checkpoint.mode=full"])
            step.append(f"--memory.budget={(3 * peak(heddle, step) + less) // 4}B")
        jobs[f"{model}, {precision.split('=')[1]}{', ' if way else ''}{way}"] = step
    jobs |= {f"pp=2, {schedule}, bf16": pipeline(2, schedule, BF16) for schedule in SCHEDULES}
    jobs |= {f"deepseek_v3 {name}": [flag.replace("llama3", "deepseek_v3") for flag in flags]
             for name, flags in JOBS.items() if name.startswith("cp=") and "qwen3" not in name}
    return jobs


def peak(heddle, flags):
    """The predicted peak without a budget."""
    done = subprocess.run([heddle, "sim", "--runtime.device=cuda", "--json", *flags], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["peak_bytes"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("heddle")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", default="", help="jobs whose names have this")
    parser.add_argument("--jobs", type=int, default=1, help="jobs at a time")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("skipped: no GPU")
        return 77
    heddle = arguments.heddle
    jobs = all_jobs(heddle) if arguments.all or arguments.only else JOBS
    jobs = {name: flags for name, flags in jobs.items() if arguments.only in name}
    steps = 20 if arguments.all else 4

    def verify(name):
        begin = time.time()
        command = [heddle, "verify", "--runtime.device=cuda", f"--training.steps={steps}", *jobs[name]]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        wrong = f"exit code {done.returncode}\n  {' '.join(command)}\n{done.stdout[-2000:]}"
        print(f"{name}: {wrong if done.returncode else 'equal'}, {time.time() - begin:.1f} s", flush=True)
        return done.returncode != 0

    with ThreadPoolExecutor(arguments.jobs) as pool:
        failed = sum(pool.map(verify, jobs))
    print(f"{len(jobs) - failed} passed, {failed} failed")
    return 1 if failed or not jobs else 0


if __name__ == "__main__":
    sys.exit(main())
