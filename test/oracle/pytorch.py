#!/usr/bin/env python3
"""Compares training with PyTorch: pytorch.py HEDDLE [--all] [--cuda] [--only TEXT] [FLAGS]

Runs `heddle verify --against=pytorch` with this Python on a list of jobs: models, meshes,
precisions. Every loss and every hash of every rank must be equal after every step. Further jobs
must differ, or be rejected. FLAGS are added to every job.

With --cuda both train on a GPU in deterministic mode, one rank over NCCL, with math and flash
attention."""
import argparse
import os
import stat
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

SAME, REFUSED, DIFFERS = 0, 1, 2


@dataclass
class Job:
    name: str
    flags: list
    # The exit code, and a part of the output.
    expected: int = SAME
    text: str = ""
    python: str = field(default_factory=lambda: sys.executable)


def model(family, flavor, **sizes):
    fields = {name.replace("__", "."): size for name, size in sizes.items()}
    return [f"--model={family}", f"--flavor={flavor}",
            *(f"--model.{name}={size}" for name, size in fields.items())]


def mesh(shard=1, replicate=1, tensor=1, expert=1, context=1, method=""):
    degrees = {"data_parallel_shard": shard, "data_parallel_replicate": replicate,
               "tensor_parallel": tensor, "expert_parallel": expert, "context_parallel": context}
    how = {"": [], "ulysses": ["method=ulysses"], "headtail": ["load_balancer=headtail"],
           "in order": ["method=allgather", "load_balancer=none"], "ring": ["method=ring"],
           "ring in order": ["method=ring", "load_balancer=none"]}[method]
    return [f"--parallelism.context_parallel_{flag}" for flag in how] + [f"--parallelism.{name}_degree={degree}" for name, degree in degrees.items()
            if degree > 1]


def steps(count=2, length=16, precision="f32"):
    return [f"--training.steps={count}", f"--training.seq_len={length}", f"--precision={precision}"]


LLAMA = model("llama3", "debugmodel", dim=64, n_layers=2, n_heads=8, n_kv_heads=4, ffn_dim=192,
              vocab_size=256)
# Sizes that ranks do not divide, so that payloads show the order of additions.
ODD = model("llama3", "debugmodel", dim=66, n_layers=2, n_heads=11, n_kv_heads=11, ffn_dim=101,
            vocab_size=251)
SCALED = LLAMA + ["--model.rope_scaling.kind=llama", "--model.rope_scaling.factor=8",
                  "--model.rope_scaling.original_length=8"]
QWEN = model("qwen3", "debugmodel", dim=64, n_layers=2, n_heads=8, n_kv_heads=4, head_dim=16,
             ffn_dim=192, vocab_size=256)
MIXTURE = model("qwen3", "debugmodel_moe", dim=64, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=16,
                vocab_size=256, moe__experts=8, moe__top_k=3, moe__ffn_dim=32)
QWEN2 = model("qwen2", "debugmodel", dim=64, n_layers=2, n_heads=8, n_kv_heads=4, ffn_dim=192,
              vocab_size=256)
OLMO2 = model("olmo2", "debugmodel", dim=64, n_layers=2, n_heads=8, n_kv_heads=4, ffn_dim=192,
              vocab_size=256)
MIXTRAL = model("mixtral", "debugmodel", dim=64, n_layers=2, n_heads=4, n_kv_heads=2, ffn_dim=48,
                vocab_size=256, moe__experts=4, moe__ffn_dim=48)
# Windows that are shorter than the sequence, in some layers.
GEMMA2 = model("gemma2", "debugmodel", dim=64, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=24,
               ffn_dim=96, vocab_size=256)
GEMMA3 = model("gemma3", "debugmodel", dim=64, n_layers=3, n_heads=4, n_kv_heads=2, head_dim=24,
               ffn_dim=96, vocab_size=256)
GPT_OSS = model("gpt_oss", "debugmodel", dim=64, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=16,
                vocab_size=256, moe__ffn_dim=32, moe__experts=4, moe__top_k=2)
GPT2 = model("gpt2", "debugmodel", dim=64, n_layers=2, n_heads=4, n_kv_heads=4, ffn_dim=96,
             vocab_size=256, max_length=24)
LATENT = {"dim": 64, "n_layers": 2, "n_heads": 4, "ffn_dim": 96, "vocab_size": 256,
          "mla__kv_rank": 24, "mla__nope_dim": 16, "mla__rope_dim": 8, "mla__v_dim": 16,
          "moe__ffn_dim": 32, "rope_scaling__original_length": 8}
DEEPSEEK = model("deepseek_v3", "debugmodel", **LATENT)
# Queries from a latent, sigmoid scores, groups of experts.
DEEPSEEK_LARGE = model("deepseek_v3", "671B", **LATENT, mla__q_rank=40, moe__experts=8,
                       moe__top_k=2, moe__dense_layers=1, moe__groups=4, moe__limited_groups=2)
SCHEDULE = ["--training.global_batch_size=8", "--lr_scheduler.warmup_steps=1",
            "--lr_scheduler.decay=cosine", "--lr_scheduler.min_lr_factor=0.1"]
SGD = ["--optimizer.name=SGD", "--optimizer.momentum=0.9", "--optimizer.lr=0.1"]
VALIDATION = ["--validation.interval=1", "--validation.steps=2"]


def muon_jobs():
    import torch
    if not hasattr(torch.optim, "Muon"):
        print(f"skipped: Muon: PyTorch {torch.__version__} has no torch.optim.Muon")
        return []
    muon = ["--optimizer.name=Muon"]
    return [Job("llama3 f32, Muon", LLAMA + steps(3) + muon),
            Job("qwen3 bf16, Muon with the rate of AdamW, norms without decay",
                QWEN + steps(3, precision="bf16") + muon
                + ["--optimizer.adjust_lr_fn=match_rms_adamw", "--optimizer.decay_vectors=false",
                   "--optimizer.nesterov=false", "--optimizer.ns_steps=3"]),
            Job("qwen3 mixture f32, Muon", MIXTURE + steps(3) + muon)]


def few_jobs():
    return [Job("llama3 fsdp=4 bf16", LLAMA + mesh(4) + steps(precision="bf16")),
            Job("llama3 hsdp=2x2 f32, accumulation, schedule",
                LLAMA + mesh(2, 2) + steps(3) + SCHEDULE),
            Job("llama3 fsdp=2 x tp=2 f32", LLAMA + mesh(2, tensor=2) + steps()),
            Job("qwen2 fsdp=2 x tp=2 f32", QWEN2 + mesh(2, tensor=2) + steps()),
            Job("olmo2 hsdp=2x2 bf16", OLMO2 + mesh(2, 2) + steps(precision="bf16")),
            Job("gemma3 fsdp=2 f32", GEMMA3 + mesh(2) + steps()),
            Job("gpt2 fsdp=2 bf16", GPT2 + mesh(2) + steps(precision="bf16")),
            Job("gpt_oss fsdp=4 x ep=2 f32", GPT_OSS + mesh(4, expert=2) + steps()),
            Job("mixtral fsdp=2 f32", MIXTRAL + mesh(2) + steps()),
            Job("qwen3 mixture fsdp=4 x ep=2 f32", MIXTURE + mesh(4, expert=2) + steps()),
            Job("qwen3 fsdp=2 f32, text, validation, norms without decay",
                QWEN + mesh(2) + steps() + VALIDATION
                + ["--training.dataset=text", "--optimizer.decay_vectors=false"]),
            Job("llama3 fsdp=2 bf16, SGD with Nesterov momentum",
                LLAMA + mesh(2) + steps(3, precision="bf16") + SGD + ["--optimizer.nesterov"]),
            Job("qwen3 fsdp=2 x tp=2 f32, SGD with dampening",
                QWEN + mesh(2, tensor=2) + steps(3) + SGD + ["--optimizer.dampening=0.3"]),
            *muon_jobs(),
            Job("deepseek_v3 671B fsdp=2 f32", DEEPSEEK_LARGE + mesh(2) + steps()),
            Job("llama3 fsdp=2 x cp=2 bf16, head-tail",
                LLAMA + mesh(2, context=2, method="headtail") + steps(precision="bf16")),
            Job("qwen3 cp=4 bf16, ring", QWEN + mesh(context=4, method="ring") + steps(length=64, precision="bf16")),
            Job("deepseek_v3 cp=2 f32, documents",
                DEEPSEEK + mesh(context=2) + steps() + ["--training.document_attention"]),
            Job("unbucketed sums of odd sizes",
                ODD + mesh(4) + steps(1) + ["--compile.passes=clean"], DIFFERS,
                "step 1 differs: rank")]


def refusals(folder):
    """Jobs that end before PyTorch trains."""
    plan = os.path.join(folder, "own.plan")
    with open(plan, "w", encoding="utf-8") as file:
        file.write('heddle plan 1\nmesh [dp=2]\ninput "*" [dp]\n'
                   'param "**" store [-] compute [-]\n')
    bare = os.path.join(folder, "bare-python")
    with open(bare, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    os.chmod(bare, os.stat(bare).st_mode | stat.S_IXUSR)
    return [Job("a Python without torch", LLAMA + steps(1), REFUSED, "-m pip install torch==",
                bare),
            Job("no Python", LLAMA + steps(1), REFUSED, "--python names the interpreter",
                os.path.join(folder, "python")),
            Job("a plan that is not FSDP", LLAMA + steps(1) + [f"--plan={plan}"], REFUSED,
                "does not support the plan"),
            Job("tensor parallelism of a mixture", MIXTURE + mesh(tensor=2) + steps(1), REFUSED,
                "does not support tensor parallelism (degree 2) of qwen3"),
            Job("tensor parallelism with layer norms", GPT2 + mesh(tensor=2) + steps(1), REFUSED,
                "does not support tensor parallelism (degree 2) of gpt2"),
            Job("another order of additions",
                LLAMA + mesh(2) + steps(1) + ["--runtime.reducer=tree"], REFUSED,
                "--runtime.reducer=tree")]


def context_jobs():
    """Parts of sequences, gathered and exchanged by hand over Gloo, or in PyTorch's ring. PyTorch
    merges half of the rows where Heddle merges all, so the rows fill vectors of its kernels."""
    models = {"llama3": LLAMA, "qwen3": QWEN, "qwen3 mixture": MIXTURE, "deepseek_v3": DEEPSEEK}
    meshes = [(4, method, mesh(context=4, method=method)) for method in ("ulysses", "headtail")]
    meshes += [(2, method, mesh(2, context=2, method=method)) for method in ("ulysses", "in order")]
    meshes.append((2, "replicas", mesh(1, 2, context=2, method="headtail")))
    rings = [(4, "ring", mesh(context=4, method="ring")),
             (2, "ring in order", mesh(2, context=2, method="ring in order"))]
    documents = ["--training.document_attention"]
    meshes += [(ranks, f"{method} documents", flags + documents) for ranks, method, flags in
               [(1, "whole", mesh(2)), *meshes[:3]]]
    meshes += rings
    return [(f"{name} cp={ranks} {method} {precision}", sizes + flags + steps(10, 64 if "ring" in method else 16, precision))
            for name, sizes in models.items() for ranks, method, flags in meshes
            for precision in ("f32", "bf16")]


def jobs_in(precision):
    debug, own, two = model("llama3", "debugmodel"), steps(precision=precision), mesh(2, tensor=2)
    meshes = [(f"fsdp={world}", mesh(world)) for world in (1, 2, 3, 4, 8)]
    meshes += [("hsdp=2x2", mesh(2, 2)), ("fsdp=2 x tp=2", two), ("fsdp=4 x tp=2", mesh(4, 1, 2))]
    whole = ["--parallelism.enable_sequence_parallel=false",
             "--parallelism.enable_loss_parallel=false"]
    jobs = [(f"llama3 debugmodel {name}", debug + flags + steps(10, precision=precision))
            for name, flags in meshes]
    jobs += [("llama3 tp=2, whole activations and logits", LLAMA + two + own + whole),
             ("llama3 tp=4", LLAMA + mesh(2, tensor=4) + own),
             ("llama3 without clipping", LLAMA + mesh(4) + own + ["--training.max_norm=0"]),
             ("llama3 odd sizes", ODD + mesh(4) + own),
             ("qwen2 fsdp=4", QWEN2 + mesh(4) + own),
             ("qwen2 fsdp=2 x tp=2", QWEN2 + two + own),
             ("olmo2 fsdp=4", OLMO2 + mesh(4) + own),
             ("gemma2 hsdp=2x2", GEMMA2 + mesh(2, 2) + own), ("gemma2 fsdp=4", GEMMA2 + mesh(4) + own),
             ("gemma3 fsdp=4", GEMMA3 + mesh(4) + own),
             ("gemma3 linear scaling", GEMMA3 + mesh(2) + own
              + ["--model.rope_scaling.kind=linear", "--model.rope_scaling.factor=8"]),
             ("gemma3 fsdp=2 x cp=2, no window",
              GEMMA3 + mesh(2, context=2) + own + ["--model.window=0"]),
             ("gpt2 fsdp=4", GPT2 + mesh(4) + own),
             ("gpt2 fsdp=2 x cp=2", GPT2 + mesh(2, context=2, method="headtail") + own),
             ("gpt2 fsdp=2, documents", GPT2 + mesh(2) + own + ["--training.document_attention"]),
             ("gpt_oss fsdp=4", GPT_OSS + mesh(4) + own),
             ("gpt_oss fsdp=2 x ep=2", GPT_OSS + mesh(2, expert=2) + own),
             ("mixtral fsdp=4", MIXTRAL + mesh(4) + own),
             ("mixtral fsdp=2 x ep=2", MIXTRAL + mesh(2, expert=2) + own),
             ("qwen3 fsdp=2 x tp=2", QWEN + two + own),
             ("qwen3 mixture fsdp=4", MIXTURE + mesh(4) + own),
             ("deepseek_v3 fsdp=4", DEEPSEEK + mesh(4) + own)]
    return [(f"{name} {precision}", flags) for name, flags in jobs]


def many_jobs():
    jobs = jobs_in("f32") + jobs_in("bf16") + context_jobs()
    bf16, llama, mixture = steps(precision="bf16"), LLAMA + mesh(2) + steps(), MIXTURE + mesh(2)
    jobs += [(f"llama3 {name}", LLAMA + flags + steps()) for name, flags in
             (("ddp=2", mesh(1, 2)), ("tp=2", mesh(tensor=2)), ("ddp=2 x tp=2", mesh(1, 2, 2)),
              ("hsdp=2x2 x tp=2", mesh(2, 2, 2)))]
    jobs += [("llama3 sums in bf16",
              LLAMA + mesh(4) + bf16 + ["--training.mixed_precision_reduce=bf16"]),
             ("llama3 f64", LLAMA + mesh(2) + steps(precision="f64")),
             ("llama3 AdamW as a loop", llama + ["--optimizer.implementation=for-loop"]),
             ("qwen2 norms and biases without decay, AdamW as a loop",
              QWEN2 + mesh(2) + steps()
              + ["--optimizer.implementation=for-loop", "--optimizer.decay_vectors=false"]),
             ("llama3 z-loss, math attention",
              llama + ["--training.z_loss=1e-3", "--attention=math"]),
             ("llama3 scaled positions", SCALED + mesh(2) + steps()),
             ("llama3 accumulation on 4 ranks, bf16",
              LLAMA + mesh(4) + bf16 + ["--training.global_batch_size=12"]),
             ("llama3 one process per rank", llama + ["--nproc=2"]),
             ("qwen3 ep=2", MIXTURE + mesh(2, expert=2) + steps(5)),
             ("qwen3 ep=4", MIXTURE + mesh(4, expert=4) + steps(5)),
             ("qwen3 fsdp=8 x ep=4", MIXTURE + mesh(8, expert=4) + steps(5)),
             ("qwen3 fsdp=4 x ep=2 bf16", MIXTURE + mesh(4, expert=2) + bf16),
             ("qwen3 auxiliary loss, accumulation",
              mixture + steps() + ["--training.aux_loss=0.1", "--training.global_batch_size=4"]),
             ("deepseek_v3 fsdp=4 x ep=2", DEEPSEEK + mesh(4, expert=2) + steps(3)),
             ("deepseek_v3 bias, accumulation",
              DEEPSEEK + mesh(2) + steps(3) + ["--training.global_batch_size=6"]),
             ("mlp hsdp=2x2", model("mlp", "small") + mesh(2, 2) + steps()),
             ("linear fsdp=3", model("linear", "small") + mesh(3) + steps())]
    for decay in ("linear", "sqrt"):
        schedule = [f"--lr_scheduler.decay={decay}", "--lr_scheduler.decay_ratio=0.5",
                    "--lr_scheduler.warmup_steps=2"]
        jobs.append((f"llama3 {decay} decay", LLAMA + mesh(2) + steps(8) + schedule))
    return [Job(name, flags) for name, flags in jobs]


def plan_jobs(heddle, folder):
    """Plans that `heddle plan` writes for flags."""
    jobs = []
    for name, flags in (("fsdp=2 x tp=2", LLAMA + mesh(2, tensor=2)),
                        ("fsdp=4 x ep=2", MIXTURE + mesh(4, expert=2))):
        path = os.path.join(folder, f"{name.replace(' ', '_')}.plan")
        command = [heddle, "plan", "--training.seq_len=16", f"--write-plan={path}", *flags]
        subprocess.check_call(command, stdout=subprocess.DEVNULL)
        sizes = [flag for flag in flags if not flag.startswith("--parallelism")]
        jobs.append(Job(f"plan {name}", sizes + steps() + [f"--plan={path}"]))
    return jobs


def gpu_jobs():
    sizes = model("llama3", "debugmodel", n_heads=8, n_kv_heads=4)
    sizes += ["--training.local_batch_size=2", "--runtime.device=cuda", "--nproc=1"]
    kernels = (("f32", "math"), ("bf16", "math"), ("bf16", "flash"))
    return [Job(f"cuda {precision} {attention}",
                sizes + steps(10, 128, precision) + [f"--attention={attention}"])
            for precision, attention in kernels]


def run(heddle, job, extra):
    """Returns the error of a job; an empty string if there is none."""
    command = [heddle, "verify", "--against=pytorch", f"--python={job.python}", *job.flags, *extra]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    printed = done.stdout + done.stderr
    if done.returncode == job.expected and job.text in printed:
        return ""
    return (f"ended with {done.returncode}, expected {job.expected} and `{job.text}`\n"
            f"{' '.join(command)}\n{printed}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("heddle")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--cuda", action="store_true", help="on a GPU")
    parser.add_argument("--only", default="", help="jobs whose names have this")
    options, extra = parser.parse_known_args()
    if options.cuda:
        import torch
        if not torch.cuda.is_available():
            print("skipped: no GPU")
            return 77
    with tempfile.TemporaryDirectory() as folder:
        if options.cuda:
            jobs = gpu_jobs()
        else:
            plans = plan_jobs(options.heddle, folder)
            jobs = few_jobs() + refusals(folder) + plans[:1]
            if options.all or options.only:
                jobs += many_jobs() + plans[1:]
        jobs = [job for job in jobs if options.only in job.name]
        failed = 0
        for job in jobs:
            start = time.time()
            wrong = run(options.heddle, job, extra)
            failed += bool(wrong)
            print(f"{job.name}: {wrong or 'as expected'}, {time.time() - start:.1f} s", flush=True)
    print(f"{len(jobs) - failed} passed, {failed} failed")
    return 1 if failed or not jobs else 0


if __name__ == "__main__":
    sys.exit(main())
