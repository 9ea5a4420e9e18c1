"""The models in plain PyTorch, for `heddle verify --against=pytorch` and `make oracle`.

Written from the published descriptions of the models. They share only the names of parameters
and of configuration fields with Heddle's C++."""
import math

import torch
import torch.nn.functional as F
from torch import nn

from experts import Mixture
from layers import (Bias, FeedForward, PlainFeedForward, angles_of, attend, capped, frequencies,
                    gelu, linear, norm_of, plain_frequencies, rotate_halves, rotate_pairs, wide)
from positions import Latents

GEMMA = ("gemma2", "gemma3")
BIASED = ("gpt2", "gpt_oss")
ROTATE_HALVES = ("qwen2", "qwen3", "olmo2", "gpt_oss", *GEMMA)


def is_local(m, layer):
    """Whether a layer has a window, if the model has one."""
    return m["global_every"] == 0 or (layer + 1) % m["global_every"] != 0


# --- Attention.


class Attention(nn.Module):
    """Grouped-query attention: Llama's, Qwen 2's with biases, Qwen 3's with a norm of every query
    and key head, OLMo 2's with a norm of all queries and of all keys, and rotation in f32,
    Gemma's with windows in some layers, gpt-oss's with sinks, or GPT-2's without rotation."""

    def __init__(self, m, context, layer):
        super().__init__()
        self.context, self.softcap = context, m["attention_softcap"]
        self.window = m["window"] if is_local(m, layer) else 0
        self.scale = 1.0 / math.sqrt(m["query_scalar"]) if m["query_scalar"] > 0 else None
        self.size = m["head_dim"] or m["dim"] // m["n_heads"]
        bias = m["family"] in ("qwen2", *BIASED)
        self.wq = linear(m["dim"], m["n_heads"] * self.size, bias)
        self.wk = linear(m["dim"], m["n_kv_heads"] * self.size, bias)
        self.wv = linear(m["dim"], m["n_kv_heads"] * self.size, bias)
        self.wo = linear(m["n_heads"] * self.size, m["dim"])
        self.sinks = None
        if m["family"] == "gpt_oss":
            self.sinks = nn.Parameter(torch.empty(m["n_heads"]))
        self.rotate = rotate_halves if m["family"] in ROTATE_HALVES else rotate_pairs
        self.q_norm = self.k_norm = None
        self.across = m["family"] == "olmo2"
        if self.across:
            self.q_norm = nn.RMSNorm(m["n_heads"] * self.size, eps=m["norm_eps"])
            self.k_norm = nn.RMSNorm(m["n_kv_heads"] * self.size, eps=m["norm_eps"])
        if m["family"] in ("qwen3", "gemma3"):
            self.q_norm, self.k_norm = norm_of(m, self.size), norm_of(m, self.size)

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
            if rotations is not None:
                q, k = (self.rotate(t, rotations) for t in (q, k))
        q, k = q.transpose(1, 2), k.transpose(1, 2)
        out = attend(q, k, v.transpose(1, 2), self.context, self.scale, self.window, self.softcap,
                     self.sinks)
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
        latent, gpt2 = m["family"] == "deepseek_v3", m["family"] == "gpt2"
        gemma = m["family"] in GEMMA
        self.attention = LatentAttention(m, context) if latent else Attention(m, context, layer)
        if m["family"] in BIASED:
            self.attention_output = Bias(m["dim"])
        names = [f"{part}{place}_norm" for part in ("attention", "ffn")
                 for place in (["", "_post"] if gemma else [""])]
        norms = {name: norm_of(m, m["dim"]) for name in names}
        self.local = is_local(m, layer)
        self.norms_after = m["family"] == "olmo2"
        self.mixture = m["moe.experts"] > 0 and layer >= m["moe.dense_layers"]
        if self.mixture:
            feeds = {"moe": Mixture(m, context)}
        elif gpt2:
            feeds = {"feed_forward": PlainFeedForward(m["dim"], m["ffn_dim"]),
                     "ffn_output": Bias(m["dim"])}
        else:
            feeds = {"feed_forward": FeedForward(m["dim"], m["ffn_dim"], gelu if gemma else F.silu)}
        # FSDP packs parameters in the order of modules; TorchTitan's models have these orders.
        for name, module in ({**norms, **feeds} if latent else {**feeds, **norms}).items():
            self.add_module(name, module)

    def forward(self, x, rotations):
        feed = self.moe if self.mixture else self.feed_forward
        if self.norms_after:
            x = x + self.attention_norm(self.attention(x, rotations))
            return x + self.ffn_norm(feed(x))
        for name, part in (("attention", lambda y: self.attention(y, rotations)), ("ffn", feed)):
            y = part(getattr(self, f"{name}_norm")(x))
            for after in (f"{name}_output", f"{name}_post_norm"):
                y = getattr(self, after)(y) if hasattr(self, after) else y
            x = x + y
        return x


class Decoder(nn.Module):
    """Every family but the toys."""

    def __init__(self, m, seq_len, context):
        super().__init__()
        self.context = context
        self.tok_embeddings = nn.Embedding(m["vocab_size"], m["dim"])
        if m["family"] == "gpt2":
            self.position_embeddings = nn.Embedding(m["max_length"], m["dim"])
        self.layers = nn.ModuleDict({str(i): Block(m, context, i) for i in range(m["n_layers"])})
        self.norm = norm_of(m, m["dim"])
        self.output = linear(m["dim"], m["vocab_size"])
        if m["tied"] == "true":
            self.output.weight = self.tok_embeddings.weight
        self.embedding_scale = math.sqrt(m["dim"]) if m["family"] in GEMMA else None
        self.softcap = m["logit_softcap"]
        # One row for each position: rotations of layers without and with a window, and positions.
        self.tables = self.rotations_of(m, seq_len)
        if m["family"] == "gpt2":
            self.tables = {"positions": torch.arange(seq_len)}

    @staticmethod
    def rotations_of(m, seq_len):
        factor = m["rope_scaling.attention_factor"]
        size = m["head_dim"] or m["dim"] // m["n_heads"]
        if m["family"] not in ROTATE_HALVES:
            latent = m["family"] == "deepseek_v3"
            angles = angles_of(seq_len, frequencies(m["mla.rope_dim"] if latent else size, m))
            return {"global": torch.polar(torch.full_like(angles, factor), angles)}
        angles = angles_of(seq_len, frequencies(size, m)).repeat(1, 2)
        tables = {"global": (angles.cos() * factor, angles.sin() * factor)}
        if m["rope_local_theta"] > 0:
            local = plain_frequencies(size, m["rope_local_theta"])
            angles = angles_of(seq_len, local).repeat(1, 2)
            tables["local"] = angles.cos(), angles.sin()
        return tables

    def change_tables(self, change):
        def changed(table):
            return tuple(change(t) for t in table) if isinstance(table, tuple) else change(table)

        return {name: changed(table) for name, table in self.tables.items()}

    def to_device(self, device):
        self.tables = self.change_tables(lambda table: table.to(device))
        return self.to(device)

    def select_positions(self, positions):
        self.tables = self.change_tables(lambda table: table[positions])

    def embed(self, tokens, tables):
        x = self.tok_embeddings(tokens)
        if self.embedding_scale is not None:
            x = x * torch.tensor(self.embedding_scale).to(x.dtype).item()
        if "positions" in tables:
            x = x + self.position_embeddings(tables["positions"])
        return x

    def forward(self, tokens):
        tables, places = self.tables, self.context.documents
        if places is not None:
            tables = self.change_tables(lambda table: table[places])
        x = self.embed(tokens, tables)
        for block in self.layers.values():
            local = block.local and "local" in tables
            x = block(x, tables.get("local" if local else "global"))
        return capped(self.output(self.norm(x)), self.softcap)


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
        return 0 if m["family"] in GEMMA else None
    if name.endswith(".bias") or "_bias_" in name:
        return 0
    layer = int(name.split(".")[1]) if name.startswith("layers.") else 0
    by_depth = 0.02 / math.sqrt(2 * (layer + 1))
    if m["family"] in ("qwen2", "qwen3", "olmo2", *BIASED, *GEMMA):
        written = (".wo.weight", ".w2.weight" if m["family"] == "gpt2" else ".w2_EDF")
        deep = m["family"] == "gpt2" or (m["family"] == "qwen3" and m["moe.experts"] > 0)
        narrow = deep and name.endswith(written)
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
