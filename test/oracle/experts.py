#!/usr/bin/env python3
"""A mixture of experts trained by PyTorch itself against `heddle verify`: experts.py HEDDLE [--all] [--only TEXT]

Qwen 3 with experts, as a user writes it: ranks share the experts, and rows go to them and back with `all_to_all_single`, on Gloo, one
process for each rank. The products are `_grouped_mm`'s. Everything else is sharded by `fully_shard` over all ranks, experts over those
that have the same. Both begin with the same safetensors file and make the same batches. After every step the loss and the hashes of every
rank's part of every parameter and of every gradient must be the same.
"""
import argparse
import os
import sys
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

import fsdp2

SMALL = {"dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "head_dim": 16, "vocab_size": 256, "moe.experts": 8,
         "moe.top_k": 3, "moe.ffn_dim": 32}


@dataclass
class Job(fsdp2.Job):
    """One run; `expert` ranks share the experts."""
    expert: int = 1
    clip: bool = False
    sizes: dict = field(default_factory=lambda: dict(SMALL))


# --- The model, as a user writes it.


class Attention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.size = s["head_dim"]
        self.wq = nn.Linear(s["dim"], s["n_heads"] * self.size, bias=False)
        self.wk = nn.Linear(s["dim"], s["n_kv_heads"] * self.size, bias=False)
        self.wv = nn.Linear(s["dim"], s["n_kv_heads"] * self.size, bias=False)
        self.wo = nn.Linear(s["n_heads"] * self.size, s["dim"], bias=False)
        self.q_norm = nn.RMSNorm(self.size, eps=1e-6)
        self.k_norm = nn.RMSNorm(self.size, eps=1e-6)

    def forward(self, x, rotations):
        q, k, v = (w(x).view(*x.shape[:2], -1, self.size) for w in (self.wq, self.wk, self.wv))
        q, k = rotate(self.q_norm(q), rotations).transpose(1, 2), rotate(self.k_norm(k), rotations).transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True, enable_gqa=True)
        return self.wo(out.transpose(1, 2).reshape(*x.shape[:2], -1))


def rotate(x, rotations):
    low, high = x.chunk(2, -1)
    cosines, sines = (part.to(x.dtype).view(1, x.shape[1], 1, -1) for part in rotations)
    return x * cosines + torch.cat([-high, low], -1) * sines


class MoveRows(torch.autograd.Function):
    """Rows, which stand by expert, go to the ranks that have their experts, and stand there by expert, then by rank; or come back.
    `table` says how many go from each rank to each expert of this one."""

    @staticmethod
    def forward(context, rows, counts, table, group, there):
        context.rest = counts, table, group, there
        return MoveRows.move(rows, *context.rest)

    @staticmethod
    def backward(context, grad):
        counts, table, group, there = context.rest
        return MoveRows.move(grad.contiguous(), counts, table, group, not there), None, None, None, None

    @staticmethod
    def move(rows, counts, table, group, there):
        sent = counts.view(len(table), -1).sum(1).tolist()
        received = table.sum(1).tolist()
        # Where each row that arrived stands by expert.
        expert = torch.arange(table.shape[1]).repeat(len(table)).repeat_interleave(table.flatten())
        order = torch.sort(expert, stable=True)[1]
        if there:
            arrived = rows.new_empty(sum(received), rows.shape[1])
            dist.all_to_all_single(arrived, rows.contiguous(), received, sent, group=group)
            return arrived[order]
        by_rank = torch.empty_like(rows)
        by_rank[order] = rows
        back = rows.new_empty(sum(sent), rows.shape[1])
        dist.all_to_all_single(back, by_rank, sent, received, group=group)
        return back


class Experts(nn.Module):
    """As many of them as this rank has."""

    def __init__(self, s, own):
        super().__init__()
        self.w1_EFD = nn.Parameter(torch.empty(own, s["moe.ffn_dim"], s["dim"]))
        self.w2_EDF = nn.Parameter(torch.empty(own, s["dim"], s["moe.ffn_dim"]))
        self.w3_EFD = nn.Parameter(torch.empty(own, s["moe.ffn_dim"], s["dim"]))

    def forward(self, rows, counts, group):
        ranks = dist.get_world_size(group)
        table = torch.empty_like(counts)
        dist.all_to_all_single(table, counts, group=group)
        table = table.view(ranks, -1)
        ends = table.sum(0).cumsum(0).to(torch.int32)
        rows = MoveRows.apply(rows, counts, table, group, True)
        product = lambda x, w: torch._grouped_mm(x, w.transpose(-2, -1), offs=ends)
        hidden = F.silu(product(rows, self.w1_EFD)) * product(rows, self.w3_EFD)
        return MoveRows.apply(product(hidden, self.w2_EDF), counts, table, group, False)


class Holder(nn.Module):
    """A module for the names of what is in it."""

    def __init__(self, **modules):
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)


class Mixture(nn.Module):
    def __init__(self, s, own, group):
        super().__init__()
        self.top_k, self.experts, self.group = s["moe.top_k"], s["moe.experts"], group
        self.routed_experts = Holder(inner_experts=Experts(s, own))
        self.router = Holder(gate=nn.Linear(s["dim"], s["moe.experts"], bias=False))

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        scores = F.linear(tokens.float(), self.router.gate.weight.float()).softmax(-1)
        chosen = scores.topk(self.top_k, -1, sorted=False)[1]
        shares = scores.gather(1, chosen)
        shares = shares / (shares.sum(-1, keepdim=True) + 1e-20)
        counts = torch.bincount(chosen.flatten(), minlength=self.experts)
        order = torch.sort(chosen.flatten(), stable=True)[1]
        rows = tokens.index_select(0, order // self.top_k)
        rows = self.routed_experts.inner_experts(rows, counts, self.group)
        by_token = rows.index_select(0, torch.sort(order, stable=True)[1]).view(len(tokens), self.top_k, -1)
        return (by_token.float() * shares.unsqueeze(-1)).sum(1).to(x.dtype).view(x.shape)


class Block(nn.Module):
    def __init__(self, s, own, group):
        super().__init__()
        self.attention = Attention(s)
        self.moe = Mixture(s, own, group)
        self.attention_norm = nn.RMSNorm(s["dim"], eps=1e-6)
        self.ffn_norm = nn.RMSNorm(s["dim"], eps=1e-6)

    def forward(self, x, rotations):
        x = x + self.attention(self.attention_norm(x), rotations)
        return x + self.moe(self.ffn_norm(x))


class Qwen3(nn.Module):
    def __init__(self, s, seq_len, own, group=None):
        super().__init__()
        self.tok_embeddings = nn.Embedding(s["vocab_size"], s["dim"])
        self.layers = nn.ModuleDict({str(i): Block(s, own, group) for i in range(s["n_layers"])})
        self.norm = nn.RMSNorm(s["dim"], eps=1e-6)
        self.output = nn.Linear(s["dim"], s["vocab_size"], bias=False)
        frequencies = 1.0 / (1e6 ** (torch.arange(0, s["head_dim"], 2).float() / s["head_dim"]))
        angles = torch.outer(torch.arange(seq_len), frequencies).float().repeat(1, 2)
        self.rotations = angles.cos(), angles.sin()

    def forward(self, tokens):
        x = self.tok_embeddings(tokens)
        for block in self.layers.values():
            x = block(x, self.rotations)
        return self.output(self.norm(x))


def write_weights(job, path):
    generator = torch.Generator().manual_seed(fsdp2.SEED)
    tensors = {}
    for name, param in Qwen3(job.sizes, job.seq_len, job.sizes["moe.experts"]).named_parameters():
        spread = 1.0 if name.startswith("tok_") else 0.1
        tensors[name] = torch.ones(param.shape) if "norm" in name else torch.randn(param.shape, generator=generator) * spread
    save_file(tensors, path)


# --- PyTorch, one process for each rank.


def own_weights(path, seats, seat):
    tensors = load_file(path)
    for name, tensor in tensors.items():
        if ".inner_experts." in name:
            tensors[name] = tensor.chunk(seats)[seat].contiguous()
    return tensors


def apply_fsdp(job, model, mesh):
    compute = {"f32": torch.float32, "bf16": torch.bfloat16}[job.precision]
    policy = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=torch.float32, cast_forward_inputs=False)
    everywhere = {"mesh": mesh["outside", "inside"]._flatten("all"), "mp_policy": policy}
    fully_shard(model.tok_embeddings, **everywhere)
    for block in model.layers.values():
        fully_shard(block.moe.routed_experts.inner_experts, mesh=mesh["outside"], mp_policy=policy)
        fully_shard(block, **everywhere)
    fully_shard([model.norm, model.output], **everywhere)
    fully_shard(model, **everywhere)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def train_rank(job, rank, port, weights, out):
    torch.set_num_threads(1)
    torch._C._set_mkldnn_enabled(False)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(job.world))
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (job.world // job.expert, job.expert), mesh_dim_names=("outside", "inside"))
    own = job.sizes["moe.experts"] // job.expert
    model = Qwen3(job.sizes, job.seq_len, own, mesh["inside"].get_group())
    model.load_state_dict(own_weights(weights, job.expert, rank % job.expert))
    apply_fsdp(job, model, mesh)
    fsdp2.train(job, rank, model, dist.group.WORLD, out)


def jobs():
    few = [Job("fsdp=4 x ep=2 f32", shard=4, expert=2)]
    many = [Job("fsdp=2 x ep=2 f32", shard=2, expert=2, steps=5), Job("fsdp=4 x ep=4 f32", shard=4, expert=4, steps=5),
            Job("fsdp=8 x ep=4 f32", shard=8, expert=4, steps=5), Job("fsdp=4 x ep=2 bf16", shard=4, expert=2, precision="bf16"),
            Job("fsdp=8 x ep=2 f32", shard=8, expert=2)]
    return few, few + many


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("heddle")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", default="", help="jobs whose names have this")
    arguments, extra = parser.parse_known_args()
    few, every = jobs()
    chosen = [job for job in (every if arguments.all or arguments.only else few) if arguments.only in job.name]
    model = ["--model=qwen3", "--flavor=debugmodel_moe"]
    return fsdp2.run_jobs(arguments.heddle, chosen, write_weights, train_rank,
                          lambda job: model + [f"--parallelism.expert_parallel_degree={job.expert}"] + extra)


if __name__ == "__main__":
    sys.exit(main())
