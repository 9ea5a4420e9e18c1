#!/usr/bin/env python3
"""A step that is replayed as a CUDA graph, with Heddle's own kernels, has the bits of a step
that ATen runs op by op.

Usage: graphs.py HEDDLE. Exit code 77: no GPU."""
import os
import subprocess
import sys
import tempfile

import torch

STEPS = 6
JOB = ["--runtime.device=cuda", "--training.dataset=synthetic", "--training.local_batch_size=2", "--training.seq_len=256",
       f"--training.steps={STEPS}"]
# The logits are so large that copies of weights do not raise the peak of memory: AdamW writes the bf16 weights of the next step.
LARGE = ["--model.vocab_size=16384", "--training.seq_len=1024"]
# Flags of each job, and whether its step is replayed.
JOBS = {
    "llama3 bf16": (["--model=llama3", "--precision=bf16"], True),
    "llama3 f32": (["--model=llama3", "--precision=f32"], True),
    "llama3 bf16, any order": (["--model=llama3", "--precision=bf16", "--attention=flash", "--debug.deterministic=false"], True),
    "llama3, 4 batches a step": (["--model=llama3", "--precision=bf16", "--training.global_batch_size=8"], True),
    "llama3, recomputed": (["--model=llama3", "--precision=bf16", "--activation_checkpoint.mode=full"], True),
    "llama3, validated": (["--model=llama3", "--precision=bf16", "--validation.interval=1", "--validation.steps=2"], True),
    "llama3, loop of ops": (["--model=llama3", "--precision=bf16", "--optimizer.implementation=for-loop"], True),
    "llama3, 4 ranks": (["--model=llama3", "--precision=bf16", "--parallelism.data_parallel_shard_degree=4"], True),
    "llama3 f64": (["--model=llama3", "--precision=f64"], False),
    "large vocabulary": (["--model=llama3", "--precision=bf16", "--model.vocab_size=32000"], True),
    "large vocabulary, 4 batches": (["--model=llama3", "--precision=bf16", "--model.vocab_size=20492", "--training.global_batch_size=8"],
                                    True),
    "large vocabulary, 4 ranks": (["--model=llama3", "--precision=bf16", "--model.vocab_size=128256",
                                   "--parallelism.data_parallel_shard_degree=4"], True),
    "large vocabulary, gathered logits": (["--model=llama3", "--precision=bf16", "--model.vocab_size=32000",
                                           "--parallelism.tensor_parallel_degree=4", "--parallelism.enable_loss_parallel=false"], True),
    "copies of weights": (["--model=llama3", "--precision=bf16", *LARGE], True),
    "copies, 4 batches": (["--model=llama3", "--precision=bf16", *LARGE, "--training.global_batch_size=8"], True),
    "copies, validated": (["--model=llama3", "--precision=bf16", *LARGE, "--validation.interval=2", "--validation.steps=1"], True),
    "copies, 4 ranks": (["--model=llama3", "--precision=bf16", *LARGE, "--parallelism.data_parallel_replicate_degree=2",
                                "--parallelism.tensor_parallel_degree=2"], True),
    "copies, recomputed": (["--model=qwen3", "--precision=bf16", *LARGE, "--activation_checkpoint.mode=full"], True),
    "no clipping, no decay": (["--model=llama3", "--precision=bf16", "--training.max_norm=0", "--optimizer.weight_decay=0"], True),
    "llama3, documents": (["--model=llama3", "--precision=bf16", "--training.document_attention"], False),
    "qwen3 bf16": (["--model=qwen3", "--precision=bf16"], True),
    "qwen3 f32": (["--model=qwen3", "--precision=f32"], True),
    "deepseek_v3 bf16": (["--model=deepseek_v3", "--precision=bf16"], True),
    "qwen3 experts": (["--model=qwen3", "--flavor=debugmodel_moe", "--precision=bf16"], True),
}
REFUSED = "runs as launches, not as a CUDA graph: "


def train(heddle, flags, path):
    """The later of two flags of one name counts."""
    by_name = {flag.split("=")[0]: flag for flag in [*JOB, *flags]}
    done = subprocess.run([heddle, "train", *by_name.values(), f"--hashes={path}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        return None, done.stdout
    with open(path, "rb") as file:
        return file.read(), done.stdout


def main():
    heddle = sys.argv[1]
    if not torch.cuda.is_available():
        print("skipped: no GPU")
        return 77
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (flags, replayed) in JOBS.items():
            path = os.path.join(folder, "hashes.jsonl")
            launched, text = train(heddle, [*flags, "--runtime.graph=off", "--runtime.kernels=off"], path)
            if launched is None:
                failures.append(f"{name} failed:\n{text}")
                continue
            graph, text = train(heddle, flags, path)
            if graph is None:
                failures.append(f"{name} failed with graphs:\n{text}")
            elif graph != launched:
                same = sum(a == b for a, b in zip(graph.splitlines(), launched.splitlines()))
                failures.append(f"{name}: graphs change bits; {same} of {len(launched.splitlines())} lines are equal")
            elif (REFUSED in text) == replayed:
                failures.append(f"{name}: expected a {'replayed' if replayed else 'launched'} step:\n{text}")
            elif "is not used" in text or "ATen runs every op" in text:
                failures.append(f"{name}: a kernel is not used:\n{text}")
            else:
                print(f"{name}: equal bits", *[line.split(REFUSED)[1] for line in text.splitlines() if REFUSED in line], flush=True)
    print("\n".join(failures))
    print(f"{len(JOBS)} jobs: {f'{len(failures)} failed' if failures else 'equal bits'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
