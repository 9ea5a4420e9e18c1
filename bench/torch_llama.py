"""Llama 3's debug model in PyTorch, for benchmarks that trace it."""
import torch
import torch.nn.functional as F

DIM, HEADS, FFN, VOCAB, POSITIONS = 256, 16, 768, 2048, 2048


def shapes(layers):
    """Returns the shapes of the parameters, in the order of `loss`."""
    block = [(DIM, DIM)] * 4 + [(FFN, DIM), (DIM, FFN), (FFN, DIM), (DIM,), (DIM,)]
    return [(VOCAB, DIM)] + block * layers + [(DIM,), (VOCAB, DIM)]


def inputs():
    """Rotations, tokens and labels of one sequence."""
    rope = torch.empty(POSITIONS, DIM // HEADS // 2, dtype=torch.complex64)
    tokens, labels = (torch.zeros(1, POSITIONS, dtype=torch.int64) for _ in range(2))
    return rope, tokens, labels


def rotate(x, rope):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * rope[None, :, None, :]).flatten(3).to(x.dtype)


def loss(params, layers, rope, tokens, labels):
    params = iter(params)
    x = F.embedding(tokens, next(params))
    for _ in range(layers):
        wq, wk, wv, wo, w1, w2, w3, n1, n2 = (next(params) for _ in range(9))
        h = F.rms_norm(x, (DIM,), n1, 1e-5)
        q, k, v = (F.linear(h, w).view(1, POSITIONS, HEADS, DIM // HEADS) for w in (wq, wk, wv))
        q, k = rotate(q, rope), rotate(k, rope)
        out = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        x = x + F.linear(out.transpose(1, 2).reshape(1, POSITIONS, -1), wo)
        h = F.rms_norm(x, (DIM,), n2, 1e-5)
        x = x + F.linear(F.silu(F.linear(h, w1)) * F.linear(h, w3), w2)
    x = F.rms_norm(x, (DIM,), next(params), 1e-5)
    logits = F.linear(x, next(params)).float().flatten(0, 1)
    return F.cross_entropy(logits, labels.flatten(), reduction="sum") / POSITIONS
