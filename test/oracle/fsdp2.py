#!/usr/bin/env python3
"""Llama 3 trained by PyTorch itself against `heddle verify`: fsdp2.py HEDDLE [--all] [--cuda] [--only TEXT]

PyTorch trains with its own fully_shard, over a mesh with replicas where there are any, and DTensor's tensor parallelism inside, on
Gloo, one process for each rank. Heddle trains on all ranks in one process, with sums in Gloo's order. Both begin with the same
safetensors file and make the same batches. After every step the loss and the hashes of every rank's part of every parameter and of
every gradient must be the same.

With --cuda both train on a GPU in deterministic mode, one rank over NCCL, with each kernel of attention.
"""
import argparse
import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                               parallelize_module)

SEED = 42
LR = 8e-4
# The kernel of attention; set in the processes of a job.
ATTENTION = "fastest"


@dataclass
class Job:
    """One run: sizes of the model, degrees of the mesh, numerics."""
    name: str
    shard: int = 1
    replicate: int = 1
    tensor: int = 1
    precision: str = "f32"
    steps: int = 2
    seq_len: int = 16
    rows: int = 1
    clip: bool = True
    sequence_parallel: bool = True
    sizes: dict = field(default_factory=lambda: dict(SMALL))
    device: str = "cpu"
    attention: str = "fastest"

    @property
    def batch_ranks(self):
        return self.replicate * self.shard

    @property
    def max_norm(self):
        """DTensor sums squares of norms over one axis of a mesh after the other, with roots in between, and counts what is whole
        along the tensor-parallel axis in parts. Heddle sums once; the last bit of the norm may differ there, and only there."""
        return 1.0 if self.clip and self.tensor == 1 else 0.0

    @property
    def world(self):
        return self.batch_ranks * self.tensor


SMALL = {"dim": 64, "n_layers": 2, "n_heads": 8, "n_kv_heads": 4, "ffn_dim": 192, "vocab_size": 256}
DEBUG = {"dim": 256, "n_layers": 6, "n_heads": 16, "n_kv_heads": 16, "ffn_dim": 768, "vocab_size": 2048}


# --- The model, as a user writes it.


class Attention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.size = s["dim"] // s["n_heads"]
        self.wq = nn.Linear(s["dim"], s["n_heads"] * self.size, bias=False)
        self.wk = nn.Linear(s["dim"], s["n_kv_heads"] * self.size, bias=False)
        self.wv = nn.Linear(s["dim"], s["n_kv_heads"] * self.size, bias=False)
        self.wo = nn.Linear(s["n_heads"] * self.size, s["dim"], bias=False)

    def forward(self, x, rotations):
        batch, positions, _ = x.shape
        # As many heads as this rank has.
        q, k, v = (w(x).view(batch, positions, -1, self.size) for w in (self.wq, self.wk, self.wv))
        q, k = rotate(q, rotations).transpose(1, 2), rotate(k, rotations).transpose(1, 2)
        out = attend(q, k, v.transpose(1, 2))
        return self.wo(out.transpose(1, 2).reshape(batch, positions, -1))


def attend(q, k, v):
    """PyTorch's choice, or the kernel that ATTENTION names."""
    backends = {"math": SDPBackend.MATH, "flash": SDPBackend.FLASH_ATTENTION}
    with sdpa_kernel(backends[ATTENTION]) if ATTENTION in backends else nullcontext():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


class FeedForward(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.w1 = nn.Linear(s["dim"], s["ffn_dim"], bias=False)
        self.w2 = nn.Linear(s["ffn_dim"], s["dim"], bias=False)
        self.w3 = nn.Linear(s["dim"], s["ffn_dim"], bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.attention = Attention(s)
        self.feed_forward = FeedForward(s)
        self.attention_norm = nn.RMSNorm(s["dim"], eps=1e-5)
        self.ffn_norm = nn.RMSNorm(s["dim"], eps=1e-5)

    def forward(self, x, rotations):
        x = x + self.attention(self.attention_norm(x), rotations)
        return x + self.feed_forward(self.ffn_norm(x))


class Llama3(nn.Module):
    def __init__(self, s, seq_len):
        super().__init__()
        self.tok_embeddings = nn.Embedding(s["vocab_size"], s["dim"])
        self.layers = nn.ModuleDict({str(i): Block(s) for i in range(s["n_layers"])})
        self.norm = nn.RMSNorm(s["dim"], eps=1e-5)
        self.output = nn.Linear(s["dim"], s["vocab_size"], bias=False)
        size = s["dim"] // s["n_heads"]
        frequencies = 1.0 / (500000.0 ** (torch.arange(0, size, 2)[: size // 2].float() / size))
        angles = torch.outer(torch.arange(seq_len), frequencies).float()
        self.register_buffer("rotations", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def forward(self, tokens):
        x = self.tok_embeddings(tokens)
        for block in self.layers.values():
            x = block(x, self.rotations)
        return self.output(self.norm(x))


def rotate(x, rotations):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * rotations.view(1, x.shape[1], 1, -1)).flatten(-2).type_as(x)


def write_weights(job, path):
    generator = torch.Generator().manual_seed(SEED)
    tensors = {}
    for name, param in Llama3(job.sizes, job.seq_len).named_parameters():
        spread = 1.0 if name.startswith("tok_") else job.sizes["dim"] ** -0.5 if name.startswith("output") else 0.02
        tensors[name] = torch.ones(param.shape) if "norm" in name else torch.randn(param.shape, generator=generator) * spread
    save_file(tensors, path)


def make_batch(job, step, part):
    """Tokens and labels of one part of the batch: splitmix64 of seed, step, row and position."""
    rows = numpy.arange(part * job.rows, (part + 1) * job.rows, dtype=numpy.uint64)[:, None]
    positions = numpy.arange(job.seq_len + 1, dtype=numpy.uint64)[None, :]
    with numpy.errstate(over="ignore"):
        x = numpy.uint64((SEED << 40) + (step << 32)) + (rows << numpy.uint64(16)) + positions
        x += numpy.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        x ^= x >> numpy.uint64(31)
    tokens = torch.from_numpy((x % numpy.uint64(job.sizes["vocab_size"])).astype(numpy.int64))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


# --- PyTorch, one process for each rank.


def apply_tensor_parallel(model, mesh, sequence_parallel):
    between = Shard(1) if sequence_parallel else Replicate()
    norm = SequenceParallel() if sequence_parallel else None
    whole = {"output": ColwiseParallel(input_layouts=between, output_layouts=Replicate()),
             "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=between)}
    layer = {"attention": PrepareModuleInput(input_layouts=(between, None), desired_input_layouts=(Replicate(), None)),
             "attention.wo": RowwiseParallel(output_layouts=between),
             "feed_forward": PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),)),
             "feed_forward.w2": RowwiseParallel(output_layouts=between)}
    for name in ("attention.wq", "attention.wk", "attention.wv", "feed_forward.w1", "feed_forward.w3"):
        layer[name] = ColwiseParallel()
    if norm:
        whole["norm"] = norm
        layer["attention_norm"] = layer["ffn_norm"] = norm
    parallelize_module(model, mesh, whole)
    for block in model.layers.values():
        parallelize_module(block, mesh, layer)


def apply_fsdp(model, mesh, precision):
    compute = {"f32": torch.float32, "bf16": torch.bfloat16}[precision]
    options = {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=torch.float32, cast_forward_inputs=False)}
    fully_shard(model.tok_embeddings, **options)
    for block in model.layers.values():
        fully_shard(block, **options)
    fully_shard([model.norm, model.output], **options)
    fully_shard(model, **options)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # The loss is divided by all tokens already. Gloo has no sum that scales; a plain one has the same bits.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def make_mesh(job):
    degrees = [(name, degree) for name, degree in (("replicate", job.replicate), ("shard", job.shard), ("tensor", job.tensor))
               if degree > 1 or name == "shard"]
    return init_device_mesh(job.device, tuple(d for _, d in degrees), mesh_dim_names=tuple(n for n, _ in degrees))


def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def sha256(tensor):
    tensor = local(tensor).detach().cpu().contiguous()
    return hashlib.sha256(tensor.view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"").hexdigest()


def train_step(job, model, optimizer, step, part):
    """The loss of all ranks, and the hashes of the gradients."""
    tokens, labels = (t.to(job.device) for t in make_batch(job, step, part))
    optimizer.zero_grad()
    logits = local(model(tokens)).float().flatten(0, 1)
    loss = F.cross_entropy(logits, labels.flatten(), reduction="sum") / float(job.rows * job.seq_len * job.batch_ranks)
    loss.backward()
    grads = {name: sha256(param.grad) for name, param in model.named_parameters()}
    if job.max_norm > 0:
        norm = torch.nn.utils.get_total_norm([param.grad for param in model.parameters()], 2.0)
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        torch.nn.utils.clip_grads_with_norm_(list(model.parameters()), job.max_norm, norm)
    optimizer.step()
    return loss.detach(), grads


def train_rank(job, rank, port, weights, out):
    torch.set_num_threads(1)
    torch._C._set_mkldnn_enabled(False)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(job.world))
    global ATTENTION
    ATTENTION = job.attention
    if job.device == "cuda":
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        torch.cuda.set_device(0)
    dist.init_process_group("nccl" if job.device == "cuda" else "gloo")
    mesh = make_mesh(job)
    model = Llama3(job.sizes, job.seq_len).to(job.device)
    model.load_state_dict(load_file(weights))
    if job.tensor > 1:
        apply_tensor_parallel(model, mesh["tensor"], job.sequence_parallel)
    apply_fsdp(model, mesh["replicate", "shard"] if job.replicate > 1 else mesh["shard"], job.precision)
    # The ranks that share this rank's slice have all parts of the batch.
    peers = [dist.new_group(list(range(t, job.world, job.tensor))) for t in range(job.tensor)][rank % job.tensor]
    train(job, rank, model, peers, out)


def train(job, rank, model, peers, out):
    """All steps of one rank; `peers` have the other parts of the batch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)
    lines = {}
    for step in range(1, job.steps + 1):
        loss, grads = train_step(job, model, optimizer, step, rank // job.tensor)
        dist.all_reduce(loss, group=peers)
        lines[step, rank, "loss"] = loss.item()
        for name, param in model.named_parameters():
            lines[step, rank, name] = sha256(param)
            lines[step, rank, name + ".grad"] = grads[name]
    torch.save(lines, f"{out}.{rank}")
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def run_pytorch(job, train_rank, weights, folder):
    port = free_port()
    # Forked: nobody pays for another import, and no op has run in this process that a child could not bear. But a forked process
    # cannot use a GPU.
    context = multiprocessing.get_context("spawn" if job.device == "cuda" else "fork")
    out = os.path.join(folder, "lines")
    ranks = [context.Process(target=train_rank, args=(job, rank, port, weights, out)) for rank in range(job.world)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    if any(rank.exitcode for rank in ranks):
        sys.exit(f"{job.name}: ranks of PyTorch ended with {[rank.exitcode for rank in ranks]}")
    lines = {}
    for rank in range(job.world):
        lines.update(torch.load(f"{out}.{rank}"))
    return lines


# --- Heddle.


def run_heddle(heddle, job, weights, folder, flags):
    path = os.path.join(folder, "hashes.jsonl")
    command = [heddle, "verify", "--against=none", "--runtime.reducer=gloo",
               f"--precision={job.precision}", f"--training.steps={job.steps}", f"--training.seq_len={job.seq_len}",
               f"--training.local_batch_size={job.rows}", f"--training.max_norm={job.max_norm}",
               f"--optimizer.lr={LR}", f"--debug.seed={SEED}", f"--checkpoint.initial_load_path={weights}",
               f"--hashes={path}", "--hash-gradients", "--parallelism.disable_loss_parallel",
               f"--parallelism.data_parallel_shard_degree={job.shard}",
               f"--parallelism.data_parallel_replicate_degree={job.replicate}",
               f"--parallelism.tensor_parallel_degree={job.tensor}",
               f"--parallelism.enable_sequence_parallel={str(job.sequence_parallel).lower()}"]
    command += [f"--runtime.device={job.device}", f"--attention={job.attention}"]
    command += [f"--model.{name}={size}" for name, size in job.sizes.items()] + flags
    environment = dict(os.environ)
    if job.device == "cuda":
        # A rank of its own, so that collectives go over NCCL.
        environment.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{job.name}: {' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    lines = {}
    with open(path, encoding="utf-8") as file:
        for line in map(json.loads, file):
            key = line["step"], line["rank"], line.get("name", "loss")
            lines[key] = float.fromhex(line["loss"]) if "loss" in line else line["sha256"]
    return lines


def compare(job, theirs, ours):
    """What differs first, or nothing."""
    if theirs.keys() != ours.keys():
        return f"PyTorch has {len(theirs)} lines, Heddle {len(ours)}; {sorted(set(theirs) ^ set(ours), key=str)[0]} has only one of them"
    differ = [key for key in theirs if theirs[key] != ours[key]]
    if not differ:
        return ""
    # Gradients of a step come before what is made of them.
    step, rank, name = min(differ, key=lambda key: (key[0], not key[2].endswith(".grad"), key[1]))
    return (f"{len(differ)} of {len(theirs)} differ, first in step {step} on rank {rank}: {name} "
            f"({theirs[step, rank, name]} and {ours[step, rank, name]})")


def jobs():
    """In the tests: a few. With --all, all that PyTorch and Heddle both can do."""
    few = [Job("fsdp=4 bf16", shard=4, precision="bf16"),
           Job("hsdp=2x2 f32", shard=2, replicate=2),
           Job("fsdp=2 x tp=2 bf16", shard=2, tensor=2, precision="bf16")]
    many = []
    for precision in ("f32", "bf16"):
        layouts = [(f"fsdp={world}", {"shard": world}) for world in (1, 2, 3, 4, 8)]
        layouts += [("hsdp=2x2", {"shard": 2, "replicate": 2}), ("fsdp=2 x tp=2", {"shard": 2, "tensor": 2}),
                    ("fsdp=4 x tp=2", {"shard": 4, "tensor": 2})]
        for name, degrees in layouts:
            many.append(Job(f"debugmodel {name} {precision}", precision=precision, steps=10, sizes=DEBUG, **degrees))
        many.append(Job(f"tp=2 without sequence parallelism {precision}", shard=2, tensor=2, precision=precision, sequence_parallel=False))
        many.append(Job(f"without clipping {precision}", shard=4, precision=precision, clip=False))
    return few, few + many


def gpu_jobs():
    sizes = dict(DEBUG, n_heads=8, n_kv_heads=4)
    options = {"device": "cuda", "seq_len": 128, "rows": 2, "steps": 10, "sizes": sizes}
    return [Job("cuda f32 math", attention="math", **options),
            Job("cuda bf16 math", attention="math", precision="bf16", **options),
            Job("cuda bf16 flash", attention="flash", precision="bf16", **options),
            Job("cuda bf16 fastest", attention="fastest", precision="bf16", **options)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("heddle")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--cuda", action="store_true", help="on a GPU")
    parser.add_argument("--only", default="", help="jobs whose names have this")
    arguments, extra = parser.parse_known_args()
    if arguments.cuda and not torch.cuda.is_available():
        print("skipped: no GPU")
        return 77
    few, every = jobs()
    pool = gpu_jobs() if arguments.cuda else every if arguments.all or arguments.only else few
    chosen = [job for job in pool if arguments.only in job.name]
    flags = ["--model=llama3", "--flavor=debugmodel", "--model.rope_scaling.kind=none"] + extra
    return run_jobs(arguments.heddle, chosen, write_weights, train_rank, lambda _: flags)


def run_jobs(heddle, chosen, write_weights, train_rank, flags):
    """PyTorch runs `train_rank`, Heddle has the flags of a job. Returns the exit status."""
    failed = 0
    for job in chosen:
        start = time.time()
        with tempfile.TemporaryDirectory() as folder:
            weights = os.path.join(folder, "weights.safetensors")
            write_weights(job, weights)
            theirs = run_pytorch(job, train_rank, weights, folder)
            wrong = compare(job, theirs, run_heddle(heddle, job, weights, folder, flags(job)))
        failed += bool(wrong)
        print(f"{job.name}: {wrong or f'{len(theirs)} losses and hashes are the same'}, {time.time() - start:.1f} s", flush=True)
    print(f"torch {torch.__version__}: {len(chosen) - failed} passed, {failed} failed")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
