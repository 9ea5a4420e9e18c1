#!/usr/bin/env python3
"""Compares one step of Llama 3 in PyTorch with the step that Heddle captures and runs:
llama3_step.py STEP_DUMP

The model uses torch.nn.functional only, as a user would write it. Loss and every gradient must
have the same bits, in f32 and with bf16 compute over f32 parameters."""
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

torch.set_num_threads(1)


def rotate(x, angles):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    turned = pairs * torch.polar(torch.ones_like(angles), angles)[None, :, None, :]
    return torch.view_as_real(turned).flatten(3).to(x.dtype)


def loss_of(weights, tokens, labels, config):
    """`weights` maps a full name to the tensor to compute with."""
    layers, heads, kv_heads, dim = config["n_layers"], config["n_heads"], config["n_kv_heads"], config["dim"]
    size = dim // heads
    exponents = torch.arange(0, size, 2)[: size // 2].float() / size
    frequencies = 1.0 / (500000.0 ** exponents)
    angles = torch.outer(torch.arange(tokens.shape[1]), frequencies).float()
    batch, positions = tokens.shape
    x = F.embedding(tokens, weights("tok_embeddings.weight"))
    for layer in range(layers):
        w = lambda name: weights(f"layers.{layer}.{name}.weight")
        h = F.rms_norm(x, (dim,), w("attention_norm"), 1e-5)
        q = F.linear(h, w("attention.wq")).view(batch, positions, heads, size)
        k = F.linear(h, w("attention.wk")).view(batch, positions, kv_heads, size)
        v = F.linear(h, w("attention.wv")).view(batch, positions, kv_heads, size)
        q, k, v = rotate(q, angles).transpose(1, 2), rotate(k, angles).transpose(1, 2), v.transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + F.linear(out.transpose(1, 2).reshape(batch, positions, -1), w("attention.wo"))
        h = F.rms_norm(x, (dim,), w("ffn_norm"), 1e-5)
        gate = F.silu(F.linear(h, w("feed_forward.w1")))
        x = x + F.linear(gate * F.linear(h, w("feed_forward.w3")), w("feed_forward.w2"))
    x = F.rms_norm(x, (dim,), weights("norm.weight"), 1e-5)
    logits = F.linear(x, weights("output.weight")).float().flatten(0, 1)
    return F.cross_entropy(logits, labels.flatten(), reduction="sum") / float(batch * positions)


def check(dump, precision, config):
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        sizes = [f"{name}={value}" for name, value in config.items()] + ["rope_scaling.kind=none"]
        subprocess.check_call([dump, "llama3", "debugmodel", precision, "48", file.name] + sizes)
        tensors = load_file(file.name)
    params = {n: t.requires_grad_() for n, t in tensors.items() if not n.startswith(("input.", "grad.")) and n != "loss"}
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[precision]
    loss = loss_of(lambda name: params[name].to(dtype), tensors["input.tokens"], tensors["input.labels"], config)
    grads = torch.autograd.grad(loss, list(params.values()))
    wrong = [] if torch.equal(loss.detach(), tensors["loss"]) else [f"loss {loss.item()} and {tensors['loss'].item()}"]
    for name, grad in zip(params, grads):
        if not torch.equal(grad, tensors[f"grad.{name}"]):
            wrong.append(f"grad of {name}: {(grad != tensors[f'grad.{name}']).sum().item()} of {grad.numel()} elements")
    print(f"{precision} {config}: {'same bits' if not wrong else 'differs in ' + '; '.join(wrong)}")
    return not wrong


def main():
    configs = [
        {"dim": 64, "n_layers": 2, "n_heads": 8, "n_kv_heads": 4, "ffn_dim": 192, "vocab_size": 256},
        {"dim": 66, "n_layers": 3, "n_heads": 11, "n_kv_heads": 11, "ffn_dim": 101, "vocab_size": 251},
    ]
    results = [check(sys.argv[1], precision, config) for precision in ("f32", "bf16") for config in configs]
    print(f"torch {torch.__version__}: {sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
