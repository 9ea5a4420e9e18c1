"""Modules that tests capture, written as users write them."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CausalSelfAttention(nn.Module):
    def __init__(self, size: int, heads: int, length: int, dropout: float, flash: bool) -> None:
        super().__init__()
        self.c_attn = nn.Linear(size, 3 * size)
        self.c_proj = nn.Linear(size, size)
        self.resid_dropout = nn.Dropout(dropout)
        self.heads, self.dropout, self.flash = heads, dropout, flash
        if not flash:
            self.register_buffer("bias", torch.tril(torch.ones(length, length))[None, None])

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.size()
        q, k, v = self.c_attn(x).split(c, dim=2)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        if self.flash:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            weights = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            weights = weights.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))
            y = F.dropout(F.softmax(weights, dim=-1), self.dropout, self.training) @ v
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c)))


class Block(nn.Module):
    def __init__(self, size: int, heads: int, length: int, dropout: float, flash: bool) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(size)
        self.attn = CausalSelfAttention(size, heads, length, dropout, flash)
        self.ln_2 = nn.LayerNorm(size)
        self.mlp = nn.Sequential(
            nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size), nn.Dropout(dropout)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class NanoGPT(nn.Module):
    """As in nanoGPT: embedding and head are tied, and the model returns logits and loss."""

    def __init__(self, *, dropout: float = 0.0, flash: bool = True) -> None:
        super().__init__()
        vocabulary, length, size = 64, 16, 32
        self.transformer = nn.ModuleDict(
            dict(
                wte=nn.Embedding(vocabulary, size),
                wpe=nn.Embedding(length, size),
                drop=nn.Dropout(dropout),
                h=nn.ModuleList([Block(size, 4, length, dropout, flash) for _ in range(2)]),
                ln_f=nn.LayerNorm(size),
            )
        )
        self.lm_head = nn.Linear(size, vocabulary, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        position = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.transformer.wte(idx) + self.transformer.wpe(position)
        x = self.transformer.drop(x)
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def gpt_loss(model: nn.Module, batch: Any) -> Tensor:
    loss: Tensor = model(batch["x"], batch["y"])[1]
    return loss


class Encoder(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.encoder(x))
        return out


class ViT(nn.Module):
    """A vision transformer with a class token and learned positions."""

    def __init__(self, image: int = 16, patch: int = 4, size: int = 32, classes: int = 5) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, size, patch, patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, size))
        self.positions = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, size) * 0.02)
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(size, 4, 64, 0.0, batch_first=True) for _ in range(2)]
        )
        self.head = nn.Linear(size, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.size(0), -1, -1), x], dim=1) + self.positions
        for layer in self.layers:
            x = layer(x)
        out: Tensor = self.head(x[:, 0])
        return out


class SelectiveScan(nn.Module):
    """A state-space layer as Mamba's: a scan over positions whose decay depends on the input."""

    def __init__(self, size: int = 16, state: int = 4) -> None:
        super().__init__()
        self.in_proj = nn.Linear(size, 2 * size)
        self.conv = nn.Conv1d(size, size, 3, padding=2, groups=size)
        self.x_proj = nn.Linear(size, 2 * state + size)
        self.A_log = nn.Parameter(torch.log(torch.arange(1, state + 1.0)).repeat(size, 1))
        self.D = nn.Parameter(torch.ones(size))
        self.out_proj = nn.Linear(size, size)
        self.state = state

    def forward(self, x: Tensor) -> Tensor:
        length = x.size(1)
        u, gate = self.in_proj(x).chunk(2, dim=-1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., :length].transpose(1, 2))
        b, c, delta = self.x_proj(u).split([self.state, self.state, u.size(-1)], dim=-1)
        delta = F.softplus(delta)
        decay = torch.exp(delta[..., None] * -torch.exp(self.A_log))
        hidden = x.new_zeros(x.size(0), u.size(-1), self.state)
        outputs = []
        for t in range(length):
            update = (delta[:, t] * u[:, t])[..., None] * b[:, t, None, :]
            hidden = decay[:, t] * hidden + update
            outputs.append((hidden * c[:, t, None, :]).sum(-1))
        y = torch.stack(outputs, dim=1) + u * self.D
        out: Tensor = self.out_proj(y * F.silu(gate))
        return out


class Experts(nn.Module):
    """Stacks of weights, for rows that are sorted by expert."""

    def __init__(self, experts: int, size: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(experts, size, hidden) * 0.2)
        self.down = nn.Parameter(torch.randn(experts, hidden, size) * 0.2)

    def forward(self, rows: Tensor, ends: Tensor) -> Tensor:
        hidden = F.gelu(F.grouped_mm(rows, self.up, offs=ends))
        out: Tensor = F.grouped_mm(hidden, self.down, offs=ends)
        return out


class Mixture(nn.Module):
    """Every token goes to its two best experts."""

    def __init__(self, experts: int = 4, size: int = 16, hidden: int = 8) -> None:
        super().__init__()
        self.gate = nn.Linear(size, experts, bias=False)
        self.experts = Experts(experts, size, hidden)
        self.count = experts

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.size(-1))
        weights, chosen = self.gate(tokens).softmax(-1).topk(2, -1)
        flat = chosen.flatten()
        counts = torch.histc(flat.float(), bins=self.count, min=0, max=self.count - 1)
        order = flat.sort(stable=True)[1]
        back = order.sort(stable=True)[1]
        rows = self.experts(tokens[order // 2], counts.cumsum(0).to(torch.int32))
        mixed = rows[back].view(-1, 2, x.size(-1)) * weights[..., None]
        return mixed.sum(1).view_as(x)


class Mixtures(nn.Module):
    """Two mixtures with residuals."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Mixture() for _ in range(2)])
        self.head = nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        out: Tensor = self.head(x)
        return out


class Norms(nn.Module):
    """Buffers of each kind: running statistics, one written in place, one assigned anew."""

    count: Tensor
    average: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("average", torch.zeros(4))
        self.register_buffer("fixed", torch.full((4,), 2.0))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x)).relu()
        with torch.no_grad():
            self.count += 1
            self.average = 0.9 * self.average + 0.1 * x.detach().mean((0, 2, 3))
        return x.mean((2, 3)) * self.fixed


def text_batch() -> dict[str, Tensor]:
    return dict(x=torch.randint(0, 64, (4, 16)), y=torch.randint(0, 64, (4, 16)))


def square(model: nn.Module, batch: Any) -> Tensor:
    return model(batch).square().mean()
