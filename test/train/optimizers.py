#!/usr/bin/env python3
"""SGD and Muon: graphs against eager training, resuming, and what is refused.

    optimizers.py HEDDLE

test/oracle/pytorch.py compares both with PyTorch's own classes."""
import json
import os
import subprocess
import sys
import tempfile

from runs import HANG, Failed, check, train

SIZES = ["--model.dim=32", "--model.n_layers=2", "--model.n_heads=4", "--model.n_kv_heads=2",
         "--model.ffn_dim=48", "--model.vocab_size=64", "--training.seq_len=16",
         "--training.local_batch_size=2", "--runtime.reducer=rank"]
SGD = ["--optimizer.name=SGD", "--optimizer.momentum=0.9", "--optimizer.nesterov"]
DAMPENED = ["--optimizer.name=SGD", "--optimizer.momentum=0.8", "--optimizer.dampening=0.3"]
MUON = ["--optimizer.name=Muon", "--optimizer.adjust_lr_fn=match_rms_adamw"]


def mesh(shard=1, tensor=1, replicate=1, **others):
    degrees = {"data_parallel_shard": shard, "tensor_parallel": tensor,
               "data_parallel_replicate": replicate, **others}
    return [f"--parallelism.{name}_degree={degree}" for name, degree in degrees.items()
            if degree > 1]


def run(heddle, name, *flags, expect=0):
    done = subprocess.run([heddle, name, *flags], capture_output=True, text=True, check=False,
                          timeout=HANG)
    if done.returncode != expect:
        raise Failed(f"{name} {' '.join(flags)}: exit code {done.returncode}\n"
                     f"{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def equals_eager(heddle):
    llama, qwen = ["--model=llama3"], ["--model=qwen3", "--model.head_dim=8"]
    mixture = ["--model=qwen3", "--flavor=debugmodel_moe", "--model.head_dim=8",
               "--model.moe.experts=4", "--model.moe.top_k=2", "--model.moe.ffn_dim=16"]
    jobs = [("SGD", llama + ["--optimizer.name=SGD"]),
            ("SGD, fsdp=2, Nesterov, bf16", llama + SGD + mesh(2) + ["--precision=bf16"]),
            ("SGD, fsdp=2 x tp=2, dampening", llama + DAMPENED + mesh(2, 2)),
            ("SGD, pp=2", llama + SGD + mesh(pipeline_parallel=2)
             + ["--training.local_batch_size=4"]),
            ("Muon, bf16, tied", qwen + MUON + ["--precision=bf16"]),
            ("Muon, fsdp=3, uneven rows", llama + MUON + mesh(3)),
            ("Muon, hsdp=2x2, accumulation",
             llama + MUON + mesh(2, replicate=2) + ["--training.global_batch_size=16"]),
            ("Muon, fsdp=2 x tp=2", llama + MUON + mesh(2, 2)),
            ("Muon, qwen3, fsdp=2 x tp=2, no Nesterov",
             qwen + mesh(2, 2) + ["--optimizer.name=Muon", "--optimizer.nesterov=false"]),
            ("Muon, experts, fsdp=2 x ep=2", mixture + MUON + mesh(4, expert_parallel=2)),
            ("Muon, cp=2", llama + MUON + mesh(context_parallel=2)),
            ("Muon, pp=2", llama + MUON + mesh(pipeline_parallel=2)
             + ["--training.local_batch_size=4"])]
    for name, flags in jobs:
        by_name = {flag.split("=")[0]: flag for flag in SIZES + flags}
        run(heddle, "verify", *by_name.values(), "--training.steps=3")
        print(f"ok: {name} has the bits of eager training", flush=True)


def losses(path):
    with open(path, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return {row["step"]: row["loss"] for row in rows if row["rank"] == 0 and "loss" in row}


def resumes(heddle, folder, name, flags):
    """Sharded and replicated ranks add the same gradients, so another mesh keeps the bits."""
    saved, alone, after = (os.path.join(folder, f"{name}{end}") for end in ("", "1", "2"))
    job = ["--training.max_norm=0", "--runtime.reducer=rank", "--training.local_batch_size=2",
           "--lr_scheduler.decay=none", *flags]
    shards, replicas = ([f"--parallelism.data_parallel_{kind}_degree=2"]
                        for kind in ("shard", "replicate"))
    train(heddle, [*job, *shards, f"--hashes={alone}"], 5)
    train(heddle, [*job, *shards, f"--checkpoint.folder={saved}"], 2)
    train(heddle, [*job, *replicas, f"--checkpoint.folder={saved}", f"--hashes={after}"], 5)
    expected = {step: loss for step, loss in losses(alone).items() if step > 2}
    check(losses(after) == expected, f"{name} resumes on another mesh with the same bits")
    adamw = [flag for flag in job if not flag.startswith("--optimizer.")]
    done = train(heddle, [*adamw, *shards, f"--checkpoint.folder={saved}"], 6, expect=1)
    text = (f"was trained with --optimizer.name={name}, this job has AdamW; resume with "
            f"--optimizer.name={name}")
    check(text in done.stderr, f"{name} is not resumed with AdamW")


def main():
    heddle = sys.argv[1]
    equals_eager(heddle)
    with tempfile.TemporaryDirectory() as folder:
        resumes(heddle, folder, "SGD", SGD)
        resumes(heddle, folder, "Muon", MUON)


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        sys.exit(str(failed))
