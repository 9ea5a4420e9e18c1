#!/usr/bin/env python3
"""Ranks that share a GPU in one process have the bits of eager training there: pipelines, and
parallelism of context, tensors and experts.

Usage: ranks.py HEDDLE [--all]. Exit code 77: no GPU. --all also runs every schedule, and more
steps."""
import subprocess
import sys
import time

import torch

SMALL = ["--model=llama3", "--flavor=debugmodel"]
EXPERTS = ["--model=qwen3", "--flavor=debugmodel_moe"]
SCHEDULES = ("GPipe", "ZB-H1", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "DualPipeV")


def pipeline(degree, schedule, *flags):
    return [*SMALL, "--model.n_layers=8", f"--parallelism.pipeline_parallel_degree={degree}",
            f"--parallelism.pipeline_parallel_schedule={schedule}", "--training.local_batch_size=8", "--training.seq_len=64", *flags]


def context(degree, method, *flags):
    return [f"--parallelism.context_parallel_degree={degree}", f"--parallelism.context_parallel_method={method}",
            "--training.seq_len=128", *flags]


DP2 = "--parallelism.data_parallel_shard_degree=2"
BF16, F32 = "--precision=bf16", "--precision=f32"
JOBS = {
    "pp=2, 1F1B, bf16": pipeline(2, "1F1B", BF16),
    "pp=4, ZBV, bf16": pipeline(4, "ZBV", BF16),
    "pp=2 x dp=2, ZBV, f32": pipeline(2, "ZBV", F32, DP2),
    "cp=2, all-gather": context(2, "allgather", BF16, *SMALL),
    "cp=4, all-gather": context(4, "allgather", BF16, *SMALL),
    "cp=2, ulysses": context(2, "ulysses", BF16, *SMALL),
    "cp=2 x dp=2, qwen3": context(2, "allgather", BF16, DP2, "--model=qwen3", "--flavor=debugmodel"),
    "tp=2 x dp=2": [*SMALL, BF16, DP2, "--parallelism.tensor_parallel_degree=2", "--training.seq_len=64"],
    "ep=2 x dp=2": [*EXPERTS, BF16, DP2, "--parallelism.expert_parallel_degree=2", "--training.seq_len=64"],
}


def main():
    heddle = sys.argv[1]
    if not torch.cuda.is_available():
        print("skipped: no GPU")
        return 77
    jobs, steps = dict(JOBS), 4
    if "--all" in sys.argv:
        steps = 10
        jobs |= {f"pp=2, {schedule}, bf16": pipeline(2, schedule, BF16) for schedule in SCHEDULES}
        jobs |= {f"deepseek_v3 {name}": [flag.replace("llama3", "deepseek_v3") for flag in flags]
                 for name, flags in JOBS.items() if name.startswith("cp=")}
    failed = 0
    for name, flags in jobs.items():
        begin = time.time()
        command = [heddle, "verify", "--runtime.device=cuda", f"--training.steps={steps}", *flags]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        failed += done.returncode != 0
        wrong = f"exit code {done.returncode}\n  {' '.join(command)}\n{done.stdout[-2000:]}"
        print(f"{name}: {wrong if done.returncode else 'equal'}, {time.time() - begin:.1f} s", flush=True)
    print(f"{len(jobs) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
