"""The models in plain PyTorch, for `heddle verify --against=pytorch` and `make oracle`.

Written from the published descriptions of the models. They share only the names of parameters
and of configuration fields with Heddle's C++."""
import math

import torch
import torch.nn.functional as F
from torch import nn

from experts import Mixture
from layers import FeedForward, angles_of, attend, linear, rotate_halves, rotate_pairs, wide
from positions import Latents

ROTATE_HALVES = ("qwen2", "qwen3", "olmo2")


# --- Attention.


class Attention(nn.Module):
    """Grouped-query attention: Llama's, Qwen 2's with biases, Qwen 3's with a norm of every query
    and key head, or OLMo 2's with a norm of all queries and of all keys, and rotation in f32."""

    def __init__(self, m, context):
        super().__init__()
        self.context, self.window = context, m["window"]
        self.size = m["head_dim"] or m["dim"] // m["n_heads"]
        bias = m["family"] == "qwen2"
        self.wq = linear(m["dim"], m["n_heads"] * self.size, bias)
        self.wk = linear(m["dim"], m["n_kv_heads"] * self.size, bias)
        self.wv = linear(m["dim"], m["n_kv_heads"] * self.size, bias)
        self.wo = linear(m["n_heads"] * self.size, m["dim"])
        self.rotate = rotate_halves if m["family"] in ROTATE_HALVES else rotate_pairs
        self.q_norm = self.k_norm = None
        self.across = m["family"] == "olmo2"
        if self.across:
            self.q_norm = nn.RMSNorm(m["n_heads"] * self.size, eps=m["norm_eps"])
            self.k_norm = nn.RMSNorm(m["n_kv_heads"] * self.size, eps=m["norm_eps"])
        if m["family"] == "qwen3":
            self.q_norm = nn.RMSNorm(self.size, eps=m["norm_eps"])
            self.k_norm = nn.RMSNorm(self.size, eps=m["norm_eps"])

    def forward(self, x, rotations):
        # With tensor parallelism this rank has some of the heads.
        q, k, v = (w(x).view(*x.shape[:2], -1, self.size) for w in (self.wq, self.wk, self.wv))
        if self.across:
            q, k = (norm(t.flatten(-2)).view(t.shape) for norm, t in
                    ((self.q_norm, q), (self.k_norm, k)))
            q, k = (self.rotate(wide(t), rotations).type_as(t) for t in (q, k))
        else:
            if self.q_norm is not None:
                q, k = self.q_norm(q), self.k_norm(k)
            q, k = (self.rotate(t, rotations) for t in (q, k))
        q, k = q.transpose(1, 2), k.transpose(1, 2)
        out = attend(q, k, v.transpose(1, 2), self.context, window=self.window)
        return self.wo(out.transpose(1, 2).reshape(*x.shape[:2], -1))


class LatentAttention(nn.Module):
    """DeepSeek's multi-head latent attention."""

    def __init__(self, m, context):
        super().__init__()
        self.context, self.heads = context, m["n_heads"]
        self.nope, self.rope = m["mla.nope_dim"], m["mla.rope_dim"]
        self.values, self.rank = m["mla.v_dim"], m["mla.kv_rank"]
        eps, queries = m["mla.norm_eps"], self.heads * (self.nope + self.rope)
        self.q_rank = m["mla.q_rank"]
        if self.q_rank == 0:
            self.wq = linear(m["dim"], queries)
        else:
            self.wq_a = linear(m["dim"], self.q_rank)
            self.q_norm = nn.RMSNorm(self.q_rank, eps=eps)
            self.wq_b = linear(self.q_rank, queries)
        self.wkv_a = linear(m["dim"], self.rank + self.rope)
        self.kv_norm = nn.RMSNorm(self.rank, eps=eps)
        self.wkv_b = linear(self.rank, self.heads * (self.nope + self.values))
        self.wo = linear(self.heads * self.values, m["dim"])
        self.scale = (self.nope + self.rope) ** -0.5
        if m["rope_scaling.kind"] == "yarn":
            stretch = 0.1 * m["mla.mscale"] * math.log(m["rope_scaling.factor"]) + 1.0
            self.scale = self.scale * stretch * stretch

    def forward(self, x, rotations):
        shape = x.shape[:2]
        q = self.wq(x) if self.q_rank == 0 else self.wq_b(self.q_norm(self.wq_a(x)))
        q = q.view(*shape, self.heads, self.nope + self.rope)
        q_nope, q_rope = q.split([self.nope, self.rope], -1)
        q = torch.cat([q_nope, rotate_pairs(q_rope, rotations)], -1)
        latent, k_rope = self.wkv_a(x).split([self.rank, self.rope], -1)
        k_rope = rotate_pairs(k_rope.unsqueeze(2), rotations)
        latent = self.kv_norm(latent)
        own = self.context.positions
        if own and own.latents:
            k_rope, latent = Latents.apply(k_rope, own), Latents.apply(latent, own)
        kv = self.wkv_b(latent).view(*latent.shape[:2], self.heads, self.nope + self.values)
        k_nope, v = kv.split([self.nope, self.values], -1)
        k = torch.cat([k_nope, k_rope.expand(-1, -1, self.heads, -1)], -1)
        out = attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), self.context,
                     self.scale)
        return self.wo(out.transpose(1, 2).reshape(*shape, -1))


# --- Whole models.


class Block(nn.Module):
    def __init__(self, m, context, layer):
        super().__init__()
        latent = m["family"] == "deepseek_v3"
        self.attention = (LatentAttention if latent else Attention)(m, context)
        norms = {name: nn.RMSNorm(m["dim"], eps=m["norm_eps"])
                 for name in ("attention_norm", "ffn_norm")}
        self.norms_after = m["family"] == "olmo2"
        self.mixture = m["moe.experts"] > 0 and layer >= m["moe.dense_layers"]
        if self.mixture:
            feeds = {"moe": Mixture(m, context)}
        else:
            feeds = {"feed_forward": FeedForward(m["dim"], m["ffn_dim"])}
        # FSDP packs parameters in the order of modules; TorchTitan's models have these orders.
        for name, module in ({**norms, **feeds} if latent else {**feeds, **norms}).items():
            self.add_module(name, module)

    def forward(self, x, rotations):
        feed = self.moe if self.mixture else self.feed_forward
        if self.norms_after:
            x = x + self.attention_norm(self.attention(x, rotations))
            return x + self.ffn_norm(feed(x))
        x = x + self.attention(self.attention_norm(x), rotations)
        return x + feed(self.ffn_norm(x))


class Decoder(nn.Module):
    """Every family but the toys."""

    def __init__(self, m, seq_len, context):
        super().__init__()
        self.context = context
        self.tok_embeddings = nn.Embedding(m["vocab_size"], m["dim"])
        self.layers = nn.ModuleDict({str(i): Block(m, context, i) for i in range(m["n_layers"])})
        self.norm = nn.RMSNorm(m["dim"], eps=m["norm_eps"])
        self.output = linear(m["dim"], m["vocab_size"])
        if m["tied"] == "true":
            self.output.weight = self.tok_embeddings.weight
        factor = m["rope_scaling.attention_factor"]
        size = m["head_dim"] or m["dim"] // m["n_heads"]
        if m["family"] in ROTATE_HALVES:
            angles = angles_of(size, seq_len, m).repeat(1, 2)
            self.rotations = angles.cos() * factor, angles.sin() * factor
        else:
            latent = m["family"] == "deepseek_v3"
            angles = angles_of(m["mla.rope_dim"] if latent else size, seq_len, m)
            self.rotations = torch.polar(torch.full_like(angles, factor), angles)

    def to_device(self, device):
        rotations = self.rotations
        several = isinstance(rotations, tuple)
        self.rotations = tuple(t.to(device) for t in rotations) if several else rotations.to(device)
        return self.to(device)

    def select_positions(self, positions):
        rotations = self.rotations
        several = isinstance(rotations, tuple)
        self.rotations = (tuple(t[positions] for t in rotations) if several
                          else rotations[positions])

    def forward(self, tokens):
        x, rotations = self.tok_embeddings(tokens), self.rotations
        places = self.context.documents
        if places is not None:
            several = isinstance(rotations, tuple)
            rotations = tuple(t[places] for t in rotations) if several else rotations[places]
        for block in self.layers.values():
            x = block(x, rotations)
        return self.output(self.norm(x))


class ToyBlock(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.up = linear(m["dim"], m["ffn_dim"])
        self.down = linear(m["ffn_dim"], m["dim"])

    def forward(self, x):
        return self.down(F.relu(self.up(x)))


class Toy(nn.Module):
    """`mlp` and `linear`, the models of tests."""

    def __init__(self, m):
        super().__init__()
        layers = m["n_layers"] if m["family"] == "mlp" else 0
        self.tok_embeddings = nn.Embedding(m["vocab_size"], m["dim"])
        self.layers = nn.ModuleDict({str(i): ToyBlock(m) for i in range(layers)})
        self.output = linear(m["dim"], m["vocab_size"])

    def to_device(self, device):
        return self.to(device)

    def forward(self, tokens):
        x = self.tok_embeddings(tokens)
        for block in self.layers.values():
            x = block(x)
        return self.output(x)


def make_model(job, context):
    m = job["model"]
    model = Toy(m) if m["family"] in ("mlp", "linear") else Decoder(m, job["seq_len"], context)
    return model.double() if job["precision"] == "f64" else model


def mixtures(model):
    """The mixtures of experts by the name of their layer."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Mixture)}


# --- Initial weights, as TorchTitan draws them.


def initial_deviation(m, name):
    """The standard deviation of a parameter's initial values; 0 for biases, which are zeros, and
    None for norms, which are ones."""
    if name.endswith("norm.weight"):
        return None
    if name.endswith(".bias"):
        return 0
    layer = int(name.split(".")[1]) if name.startswith("layers.") else 0
    by_depth = 0.02 / math.sqrt(2 * (layer + 1))
    if m["family"] in ("qwen2", "qwen3", "olmo2"):
        narrow = m["moe.experts"] > 0 and name.endswith((".wo.weight", ".w2_EDF"))
        return 0.02 / math.sqrt(2 * m["n_layers"]) if narrow else 0.02
    if name == "output.weight":
        return m["dim"] ** -0.5
    if name == "tok_embeddings.weight":
        return 0.02 if m["tied"] == "true" else 1.0
    if name.endswith((".wo.weight", ".w2.weight", ".w3.weight", ".w2_EDF", ".w3_EFD")):
        return by_depth
    if m["family"] == "deepseek_v3" and name.endswith(".router.gate.weight"):
        return by_depth
    return 0.02
