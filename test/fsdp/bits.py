#!/usr/bin/env python3
"""Compares training with eager, bit by bit: bits.py HEDDLE [--all] [--product] [--only TEXT]
[--steps N] [--jobs N]

Trains debug models on eight or more ranks for 25 steps with `heddle verify`. The bits of a job
must be equal (exit code 0), or must differ (2) because of another order of additions. The
default is a few jobs with few layers. --all runs every model, mesh, policy and precision, with
alternating reducers and prefetch depths, and many ranks. --product runs every reducer and depth
of each."""
import argparse
import itertools
import math
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

MODELS = ("llama3", "qwen2", "qwen3", "mixtral", "deepseek_v3")
MESHES = {"fsdp=8": {"shard": 8}, "hsdp=2x4": {"replicate": 2, "shard": 4}, "fsdp=4 x tp=2": {"shard": 4, "tensor": 2}}
POLICIES = ("always", "never", "default")
REDUCERS = ("gloo", "ring:4", "rank")
DEPTHS = (0, 1, 2, 3)
NARROW = {"dim": 64, "n_heads": 4, "n_kv_heads": 2, "head_dim": 16, "ffn_dim": 128, "vocab_size": 256}
# The published debug models of mixtures take 10 GB of memory and minutes per job.
NARROW_EXPERTS = {**NARROW, "moe.experts": 8, "moe.top_k": 2, "moe.ffn_dim": 32}
# Its heads have sizes of their own. The first layer has no experts.
NARROW_LATENT = {"dim": 64, "n_heads": 4, "ffn_dim": 128, "vocab_size": 256, "n_layers": 3}
ODD = {"dim": 66, "n_heads": 11, "n_kv_heads": 11, "head_dim": 6, "ffn_dim": 101, "vocab_size": 251}


@dataclass
class Job:
    name: str
    flags: list = field(default_factory=list)
    differs: bool = False
    seq_len: int = 16
    # The default; the command line overrides it.
    steps: int = 25
    batch: int = 1


def sizes(of):
    return [f"--model.{name}={size}" for name, size in of.items()]


def degrees(mesh):
    names = {"shard": "data_parallel_shard", "replicate": "data_parallel_replicate", "tensor": "tensor_parallel",
             "context": "context_parallel", "expert": "expert_parallel", "pipeline": "pipeline_parallel"}
    return [f"--parallelism.{names[kind]}_degree={degree}" for kind, degree in mesh.items()]


def against_eager(product):
    layouts = [(model, mesh) for model in MODELS for mesh in ("fsdp=8", "hsdp=2x4")] + [(model, "fsdp=4 x tp=2") for model in MODELS]
    turns = itertools.cycle(itertools.product(REDUCERS, DEPTHS))
    for (model, mesh), policy, precision in itertools.product(layouts, POLICIES, ("f32", "bf16")):
        for reducer, depth in itertools.product(REDUCERS, DEPTHS) if product else [next(turns)]:
            yield Job(f"{model} {mesh} {policy} {precision} {reducer} depth {depth}",
                      [f"--model={model}", f"--precision={precision}", f"--runtime.reducer={reducer}",
                       f"--parallelism.fsdp_reshard_after_forward={policy}", f"--compile.prefetch_forward={depth}",
                       f"--compile.prefetch_backward={depth}", *degrees(MESHES[mesh])])


def context():
    """Ranks that share the positions of sequences."""
    meshes = {"dp=2 x cp=2": {"shard": 2, "context": 2}, "cp=4": {"context": 4}, "cp=2 x tp=2": {"context": 2, "tensor": 2},
              "hsdp=2x2 x cp=2": {"replicate": 2, "shard": 2, "context": 2}, "dp=2 x cp=2 x ep=2": {"shard": 2, "context": 2, "expert": 2}}
    ways = {"head-tail": ["method=allgather"], "in order": ["method=allgather", "load_balancer=none"], "ulysses": ["method=ulysses"],
            "ring": ["method=ring"], "ring in order": ["method=ring", "load_balancer=none"]}
    models = {"llama3": [], "qwen3": [], "qwen3 mixture": ["--flavor=debugmodel_moe", *sizes(NARROW_EXPERTS)], "deepseek_v3": sizes(NARROW_LATENT)}
    for (model, flavor), (mesh, ranks), (way, flags), precision in itertools.product(models.items(), meshes.items(), ways.items(), ("f32", "bf16")):
        if "expert" in ranks and model in ("llama3", "qwen3"):
            continue
        packed = mesh == "dp=2 x cp=2" and not way.startswith("ring")
        for documents in ([], ["--training.document_attention"]) if packed else ([],):
            name = f"{model} {mesh} {way} {precision}{' documents' if documents else ''}"
            yield Job(name, [f"--model={model.split()[0]}", *flavor, f"--precision={precision}", *degrees(ranks), *documents,
                             *(f"--parallelism.context_parallel_{flag}" for flag in flags)], seq_len=32, steps=10)


def pipelines():
    """Every schedule; then every schedule together with each other kind of parallelism."""
    # Stages of a rank.
    chunks = {"GPipe": 1, "1F1B": 1, "ZB-H1": 1, "Interleaved1F1B": 2, "LoopedBFS": 2, "InterleavedZeroBubble": 2, "ZBV": 2, "DualPipeV": 2}
    small = sizes(NARROW)

    def job(schedule, stages, ranks, batches, precision, flags):
        mesh = " x ".join(f"{kind}={degree}" for kind, degree in {"pipeline": stages, **ranks}.items())
        # The embedding and the output are parts of the first and the last stage.
        layers = stages * chunks[schedule]
        return Job(f"{schedule} {mesh}, {batches} micro-batches, {precision}{' tied' if '--model.tied=true' in flags else ''}",
                   [f"--precision={precision}", f"--model.n_layers={layers}", f"--parallelism.pipeline_parallel_schedule={schedule}",
                    *degrees({"pipeline": stages, **ranks}), *small, *flags], steps=10, batch=batches)

    for schedule, stages, batches, precision, tied in itertools.product(chunks, (2, 4), (4, 5, 8), ("f32", "bf16"), ("false", "true")):
        # Micro-batches divide into rounds of at least one for each rank; DualPipeV starts with two for each.
        if schedule == "ZB-H1" and batches % max(1, batches // stages):
            continue
        if schedule in ("Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble") and batches % stages:
            continue
        if schedule == "DualPipeV" and batches < 2 * stages:
            continue
        yield job(schedule, stages, {}, batches, precision, ["--model=llama3", f"--model.tied={tied}"])
    experts = ["--model=qwen3", "--flavor=debugmodel_moe", "--model.moe.experts=4", "--model.moe.top_k=2", "--model.moe.ffn_dim=32"]
    for schedule, ranks, precision in itertools.product(
            chunks, ({"shard": 2}, {"tensor": 2}, {"context": 2}, {"shard": 2, "expert": 2}, {"replicate": 2}), ("f32", "bf16")):
        yield job(schedule, 2, ranks, 4, precision, experts if "expert" in ranks else ["--model=llama3"])
    for schedule, ranks, gather, reduce, batches in itertools.product(
            ("1F1B", "Interleaved1F1B", "LoopedBFS", "ZBV"), ({"shard": 2}, {"replicate": 2, "shard": 2}), (1, 3), (1, 3), (1, 2)):
        groups = [f"--parallelism.pipeline_parallel_gather_every={gather}", f"--parallelism.pipeline_parallel_reduce_every={reduce}",
                  f"--training.global_batch_size={4 * batches * math.prod(ranks.values())}"]
        made = job(schedule, 2, ranks, 4, "bf16", ["--model=llama3", "--model.tied=true", *groups])
        made.name += f", gathered every {gather}, reduced every {reduce}, {batches} batches"
        yield made


def without_buckets():
    odd = ["--precision=f32", *sizes(ODD), *degrees(MESHES["fsdp=8"])]
    for pipeline, reducer, differs in (("none", "rank", False), ("none", "gloo", True), ("fsdp", "gloo", False)):
        yield Job(f"llama3 odd sizes, pipeline {pipeline}, {reducer}", [*odd, f"--compile.pipeline={pipeline}", f"--runtime.reducer={reducer}"], differs)
    for model in ("qwen3", "deepseek_v3"):
        yield Job(f"{model} fsdp=4 x tp=2, pipeline none against fsdp",
                  [f"--model={model}", "--compile.pipeline=none", "--against=fsdp", "--runtime.reducer=rank", *degrees(MESHES["fsdp=4 x tp=2"])])


def payload_order(worlds):
    """Jobs on many ranks. Both types sum in the same precision here: bf16 gradients summed in
    f32 are nearly always exact, so their order would hardly show."""
    for ranks, precision in itertools.product(worlds, ("f32", "bf16")):
        flags = [f"--precision={precision}", f"--training.mixed_precision_reduce={precision}", "--runtime.reducer=ring:4", *degrees({"shard": ranks})]
        yield Job(f"llama3 on {ranks} ranks, {precision}, parameters in order", flags, seq_len=8)
        yield Job(f"llama3 on {ranks} ranks, {precision}, order of the graph", [*flags, "--compile.bucket_order=graph"], differs=True, seq_len=8)


def few():
    """A few jobs of every kind, with one narrow layer: a CPU without bf16 instructions
    multiplies 500 times slower than in f32."""
    small = ["--model.n_layers=1", *sizes(NARROW)]
    eager = [job for job in against_eager(product=False) if "deepseek" not in job.name][::9]
    order = [job for job in payload_order([64]) if "bf16" in job.name]
    # A mixture without shared experts: they are in the payload of their layer.
    mixture = next(job for job in against_eager(product=False) if job.name.startswith("deepseek_v3 fsdp=4 x tp=2 always f32 gloo"))
    eager_mixture = Job(mixture.name, [*mixture.flags, "--model.n_layers=2"], steps=2)
    parts = [job for job in context() if job.name in ("llama3 cp=4 head-tail bf16", "deepseek_v3 dp=2 x cp=2 x ep=2 head-tail bf16",
                                                      "qwen3 dp=2 x cp=2 ulysses f32 documents", "llama3 cp=2 x tp=2 ring bf16",
                                                      "deepseek_v3 dp=2 x cp=2 ring in order f32")]
    two_layers = ["--model.n_layers=2", *sizes(NARROW)]
    parts = [Job(job.name, job.flags if job.name.startswith("deepseek") else [*job.flags, *two_layers], seq_len=32, steps=3) for job in parts]
    return ([Job(job.name, job.flags + small) for job in eager] + [eager_mixture] + parts +
            [Job(job.name, job.flags + small, job.differs, job.seq_len, steps=3) for job in order])


def run(heddle, job, steps):
    flavor = [] if any(flag.startswith("--flavor=") for flag in job.flags) else ["--flavor=debugmodel"]
    command = [heddle, "verify", *flavor, f"--training.steps={steps or job.steps}", f"--training.seq_len={job.seq_len}",
               f"--training.local_batch_size={job.batch}", *job.flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == (2 if job.differs else 0):
        return ""
    return f"ended with {done.returncode}, not {2 if job.differs else 0}\n  {' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-2000:]}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("heddle")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--product", action="store_true")
    parser.add_argument("--only", default="", help="jobs whose names have this")
    parser.add_argument("--steps", type=int, help="instead of 25")
    parser.add_argument("--jobs", type=int, default=1, help="so many at a time")
    arguments = parser.parse_args()
    if arguments.all or arguments.product or arguments.only:
        jobs = [*against_eager(arguments.product), *context(), *pipelines(), *without_buckets(), *payload_order([64, 128, 256])]
    else:
        jobs = few()
    jobs = [job for job in jobs if arguments.only in job.name]

    def finish(job):
        begin = time.time()
        wrong = run(arguments.heddle, job, arguments.steps)
        print(f"{job.name}: {wrong or ('differs' if job.differs else 'equal')}, {time.time() - begin:.1f} s", flush=True)
        return bool(wrong)

    with ThreadPoolExecutor(arguments.jobs) as pool:
        failed = sum(pool.map(finish, jobs))
    print(f"{len(jobs) - failed} passed, {failed} failed")
    return 1 if failed or not jobs else 0


if __name__ == "__main__":
    sys.exit(main())
