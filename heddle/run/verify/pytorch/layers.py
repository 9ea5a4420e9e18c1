"""Layers that all models use: rotary embedding, attention, feed-forward.

Part of `heddle verify --against=pytorch` and `make oracle`.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import positions

IGNORED = -100


class Context:
    """State that modules need in addition to their input: numerics, the expert group, and loss
    terms."""

    def __init__(self, job, expert_group=None):
        self.attention = job["attention"]
        self.aux_loss = job["aux_loss"]
        self.expert_group = expert_group
        self.expert_ranks = job["expert"]
        self.loss_terms = []
        # With context parallelism: the positions of this rank.
        self.positions = None
        # The place of each position in its document; None: a row is one document.
        self.documents = None


def wide(x):
    """Casts to at least f32: scores, angles and losses are not computed in bf16."""
    return x if x.dtype == torch.float64 else x.float()


# --- Rotary embedding.


def frequencies(size, model):
    """Angle per position of each pair, scaled for long contexts as Llama 3.1 or YaRN does."""
    theta, kind = model["rope_theta"], model["rope_scaling.kind"]
    plain = 1.0 / (theta ** (torch.arange(0, size, 2)[: size // 2].float() / size))
    if kind == "none":
        return plain
    factor, length = model["rope_scaling.factor"], model["rope_scaling.original_length"]
    if kind == "llama":
        low, high = model["rope_scaling.low_freq"], model["rope_scaling.high_freq"]
        wavelength = 2 * math.pi / plain
        smooth = (length / wavelength - low) / (high - low)
        blended = (1 - smooth) * plain / factor + smooth * plain
        scaled = torch.where(wavelength > length / low, plain / factor, plain)
        middle = ~(wavelength < length / high) & ~(wavelength > length / low)
        return torch.where(middle, blended, scaled)

    def dimension(rotations):
        return size * math.log(length / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(dimension(model["rope_scaling.fast"])), 0)
    high = min(math.ceil(dimension(model["rope_scaling.slow"])), size - 1)
    if low == high:
        high += 0.001
    ramp = torch.clamp((torch.arange(size // 2).float() - low) / (high - low), 0, 1)
    smooth = 1 - ramp
    return plain / factor * (1 - smooth) + plain * smooth


def angles_of(size, seq_len, model):
    return torch.outer(torch.arange(seq_len), frequencies(size, model)).float()


def rotate_pairs(x, rotations):
    pairs = torch.view_as_complex(wide(x).reshape(*x.shape[:-1], -1, 2))
    turned = pairs * rotations.view(-1, x.shape[1], 1, rotations.shape[-1])
    return torch.view_as_real(turned).flatten(-2).type_as(x)


def rotate_halves(x, rotations):
    low, high = x.chunk(2, -1)
    cosines, sines = (part.to(x.dtype).view(-1, x.shape[1], 1, part.shape[-1])
                      for part in rotations)
    return x * cosines + torch.cat([-high, low], -1) * sines


# --- Attention.


def attend(q, k, v, context, scale=None, window=0):
    """Causal attention, to the last `window` positions (0: to all). In deterministic mode PyTorch never chooses cuDNN, so it is called
    directly."""
    size = v.shape[-1]
    if context.attention != "math" and size != q.shape[-1]:
        # The fused kernels need values as wide as queries.
        v = F.pad(v, (0, q.shape[-1] - size))
    length = q.shape[2]
    if 0 < window < length:
        mask = torch.ones(length, length, dtype=torch.bool, device=q.device).tril().triu(1 - window)
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale,
                                                  enable_gqa=q.shape[1] != k.shape[1])
    if context.positions:
        return positions.attend(q, k, v, context.documents, context.positions, scale)[..., :size]
    if context.documents is not None:
        return positions.attend_whole(q, k, v, context.documents, scale)[..., :size]
    if context.attention == "cudnn":
        out = torch.ops.aten._scaled_dot_product_cudnn_attention(
            q, k, v, None, True, 0.0, True, False, scale=scale)[0]
        return out[..., :size]
    options = {"is_causal": True, "scale": scale, "enable_gqa": q.shape[1] != k.shape[1]}
    if context.attention == "fastest":
        out = F.scaled_dot_product_attention(q, k, v, **options)
    else:
        kinds = {"math": SDPBackend.MATH, "flash": SDPBackend.FLASH_ATTENTION}
        with sdpa_kernel(kinds[context.attention]):
            out = F.scaled_dot_product_attention(q, k, v, **options)
    return out[..., :size]


def linear(inputs, outputs, bias=False):
    return nn.Linear(inputs, outputs, bias=bias)


# --- Feed-forward.


class FeedForward(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = linear(dim, hidden)
        self.w2 = linear(hidden, dim)
        self.w3 = linear(dim, hidden)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))
