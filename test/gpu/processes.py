#!/usr/bin/env python3
"""Rank processes over NCCL have the bits of ranks in one process: processes.py HEDDLE [--all]
[--only TEXT]

Each rank gets a GPU of its own, if there are enough. Otherwise the ranks share one: NCCL_HOSTID
tells NCCL that they are on different hosts, which it would refuse on one, and they communicate over
the loopback device. Every group that adds has two ranks, so that the order of NCCL's additions does
not matter. Exit code 77: no GPU."""
import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time

import torch

STEP = ["--runtime.device=cuda", "--training.steps=5", "--training.seq_len=128"]
LLAMA, EXPERTS = ["--model=llama3", "--flavor=debugmodel"], ["--model=qwen3", "--flavor=debugmodel_moe"]
DEEPSEEK = ["--model=deepseek_v3", "--flavor=debugmodel"]


def ranks(**degrees):
    names = {"dp": "data_parallel_shard", "hsdp": "data_parallel_replicate", "tp": "tensor_parallel", "cp": "context_parallel",
             "ep": "expert_parallel", "pp": "pipeline_parallel"}
    return [f"--parallelism.{names[kind]}_degree={degree}" for kind, degree in degrees.items()]


def pipeline(degree, schedule, *flags):
    return [*LLAMA, "--model.n_layers=8", "--training.local_batch_size=8", f"--parallelism.pipeline_parallel_schedule={schedule}",
            *ranks(pp=degree), *flags]


BF16, F32 = "--precision=bf16", "--precision=f32"
# Names, number of ranks and flags.
JOBS = {
    "dp=2, f32": (2, [*LLAMA, F32, *ranks(dp=2)]),
    "dp=2, bf16": (2, [*LLAMA, BF16, *ranks(dp=2)]),
    "dp=2, bf16, loss kernel": (2, [*LLAMA, BF16, "--model.vocab_size=16384", *ranks(dp=2)]),
    "dp=2, accumulation": (2, [*LLAMA, BF16, "--training.global_batch_size=8", *ranks(dp=2)]),
    "hsdp=2": (2, [*LLAMA, BF16, *ranks(hsdp=2)]),
    "tp=2": (2, [*LLAMA, BF16, *ranks(tp=2)]),
    "cp=2": (2, [*LLAMA, BF16, *ranks(cp=2)]),
    "cp=2, ring": (2, [*LLAMA, BF16, "--parallelism.context_parallel_method=ring", *ranks(cp=2)]),
    "ep=2": (2, [*EXPERTS, BF16, *ranks(dp=2, ep=2)]),
    "ep=2, deepseek_v3": (2, [*DEEPSEEK, F32, *ranks(dp=2, ep=2)]),
    "pp=2, 1F1B, f32": (2, pipeline(2, "1F1B", F32)),
    "pp=2, ZBV, bf16": (2, pipeline(2, "ZBV", BF16)),
    "pp=2, Interleaved1F1B, tied": (2, pipeline(2, "Interleaved1F1B", BF16, "--model.tied=true")),
    "pp=4, DualPipeV": (4, pipeline(4, "DualPipeV", BF16)),
    "pp=2 x dp=2, ZBV": (4, pipeline(2, "ZBV", BF16, *ranks(dp=2))),
    "pp=2 x dp=2, gathered per micro-batch": (
        4, pipeline(2, "1F1B", BF16, "--parallelism.pipeline_parallel_gather_every=1", *ranks(dp=2))),
    "pp=2 x tp=2": (4, pipeline(2, "1F1B", BF16, *ranks(tp=2))),
}
# The default.
FEW = ("dp=2, bf16, loss kernel", "tp=2", "cp=2", "pp=2, ZBV, bf16", "pp=2 x dp=2, ZBV")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_processes(command, count):
    own = torch.cuda.device_count() >= count
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(count)}
    if not own:
        environment |= {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "LOCAL_RANK": "0"}
    processes = []
    for rank in range(count):
        names = {"RANK": str(rank), **({"LOCAL_RANK": str(rank)} if own else {"NCCL_HOSTID": f"host{rank}"})}
        processes.append(subprocess.Popen(command, env={**environment, **names}, stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT, text=True))
    texts = []
    for process in processes:
        try:
            texts.append(process.communicate(timeout=180)[0])
        except subprocess.TimeoutExpired:
            for other in processes:
                other.kill()
            texts.append(process.communicate()[0] + "\nno end after 180 s")
    return max((abs(process.returncode) for process in processes), default=0), "\n".join(text[-1500:] for text in texts)


def lines(path):
    return sorted(open(path)) if os.path.exists(path) else []


def compare(heddle, count, flags, folder):
    """Returns what is wrong; an empty text if nothing is."""
    alone, together = (os.path.join(folder, name) for name in ("alone.jsonl", "together.jsonl"))
    command = [heddle, "train", *STEP, *flags]
    done = subprocess.run([*command, f"--hashes={alone}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        return f"one process ended with {done.returncode}\n{done.stdout[-2000:]}"
    code, text = run_processes([*command, f"--hashes={together}", "--runtime.timeout=120"], count)
    if code != 0:
        return f"the processes ended with {code}\n{text}"
    expected, found = lines(alone), lines(together)
    differing = [line for line in expected if line not in set(found)]
    if not expected or len(expected) != len(found) or differing:
        return f"{len(expected)} and {len(found)} hashes, {len(differing)} differ: {differing[:2]}"
    return ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("heddle")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", default="", help="jobs whose names have this")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("skipped: no GPU")
        return 77
    names = JOBS if arguments.all or arguments.only else FEW
    jobs = {name: JOBS[name] for name in names if arguments.only in name}
    failed = 0
    for name, (count, flags) in jobs.items():
        begin = time.time()
        with tempfile.TemporaryDirectory() as folder:
            wrong = compare(arguments.heddle, count, flags, folder)
        failed += bool(wrong)
        print(f"{name}: {wrong or 'equal'}, {time.time() - begin:.1f} s", flush=True)
    print(f"{len(jobs) - failed} passed, {failed} failed")
    return 1 if failed or not jobs else 0


if __name__ == "__main__":
    sys.exit(main())
