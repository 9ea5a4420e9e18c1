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


def plain_frequencies(size, theta):
    """Angle per position of each pair."""
    return 1.0 / (theta ** (torch.arange(0, size, 2)[: size // 2].float() / size))


def frequencies(size, model):
    """Angle per position of each pair, scaled for long contexts as the model's kind does."""
    theta, kind = model["rope_theta"], model["rope_scaling.kind"]
    plain = plain_frequencies(size, theta)
    if kind == "none":
        return plain
    if kind == "linear":
        return plain / model["rope_scaling.factor"]
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

    low, high = dimension(model["rope_scaling.fast"]), dimension(model["rope_scaling.slow"])
    if model["rope_scaling.truncate"] == "true":
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    if low == high:
        high += 0.001
    ramp = torch.clamp((torch.arange(size // 2).float() - low) / (high - low), 0, 1)
    smooth = 1 - ramp
    return plain / factor * (1 - smooth) + plain * smooth


def angles_of(seq_len, per_position):
    return torch.outer(torch.arange(seq_len), per_position).float()


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


def capped(x, cap):
    return torch.tanh(x / cap) * cap if cap > 0 else x


def attend_by_parts(q, k, v, scale, window, softcap, sinks):
    """Causal attention with a limit of scores, and with sinks."""
    length, times = q.shape[2], q.shape[1] // k.shape[1]
    if times > 1:
        k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
    scores = capped(torch.matmul(q, k.transpose(2, 3)) * scale, softcap)
    seen = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
    if 0 < window < length:
        seen = seen.triu(1 - window)
    mask = torch.zeros(length, length, dtype=q.dtype, device=q.device)
    mask = mask.masked_fill(~seen, -torch.inf)
    scores = wide(scores + mask)
    if sinks is not None:
        scores = torch.cat([scores, wide(sinks).view(1, -1, 1, 1).expand(*scores.shape[:3], 1)], -1)
    shares = torch.softmax(scores, -1)[..., :length]
    return torch.matmul(shares.to(v.dtype), v)


def attend(q, k, v, context, scale=None, window=0, softcap=0, sinks=None):
    """Causal attention, to the last `window` positions (0: to all). In deterministic mode PyTorch
    never chooses cuDNN, so it is called directly."""
    if softcap > 0 or sinks is not None:
        scale = scale or 1.0 / math.sqrt(q.shape[-1])
        return attend_by_parts(q, k, v, scale, window, softcap, sinks)
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


class BiasedLinear(nn.Linear):
    """Sums the gradient of its bias over rows that are stored one after the other."""

    def forward(self, x):
        out = super().forward(x)
        if out.requires_grad:
            out.register_hook(lambda grad: grad.contiguous())
        return out


def linear(inputs, outputs, bias=False):
    return BiasedLinear(inputs, outputs) if bias else nn.Linear(inputs, outputs, bias=False)


# --- Feed-forward.


class FeedForward(nn.Module):
    def __init__(self, dim, hidden, activation=F.silu):
        super().__init__()
        self.activation = activation
        self.w1 = linear(dim, hidden)
        self.w2 = linear(hidden, dim)
        self.w3 = linear(dim, hidden)

    def forward(self, x):
        return self.w2(self.activation(self.w1(x)) * self.w3(x))


def gelu(x):
    return F.gelu(x, approximate="tanh")


class PlainFeedForward(nn.Module):
    """GPT-2's."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = linear(dim, hidden, bias=True)
        self.w2 = linear(hidden, dim)

    def forward(self, x):
        return self.w2(gelu(self.w1(x)))


class Bias(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.bias = nn.Parameter(torch.empty(dim))

    def forward(self, x):
        return x + self.bias


class OffsetNorm(nn.Module):
    """Gemma's norm: multiplies by 1 plus the weight, in f32."""

    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.empty(size)), eps

    def forward(self, x):
        weight = wide(self.weight) + 1.0
        return F.rms_norm(wide(x), (x.shape[-1],), weight, self.eps).type_as(x)


def norm_of(m, size):
    """The family's norm."""
    kinds = {"gemma2": OffsetNorm, "gemma3": OffsetNorm, "gpt2": nn.LayerNorm}
    return kinds.get(m["family"], nn.RMSNorm)(size, eps=m["norm_eps"])
