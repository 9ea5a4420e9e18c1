"""rivals.py MODEL ATTENTION MODE...: ms of a training step in PyTorch. MODEL: 160M, 1.5B, 0.6B
(Qwen 3), 8B4 (Llama 3 8B with 4 layers), small, tiny. ATTENTION: cudnn, flash, math. MODE: eager, default, reduce-overhead, max-autotune,
max-autotune-no-cudagraphs; ':complex' rotates with complex numbers, ':copt' compiles clipping and
AdamW as well. f32 masters, bf16 compute, f32 gradients, clip 1.0, fused AdamW."""
import contextlib
import gc
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from nvk import main, res

MODELS = {"160M": (768, 12, 12, 4, 2048, 32000, 8, 1024), "1.5B": (2048, 16, 32, 8, 8192, 128256, 4, 4096),
          "8B4": (4096, 4, 32, 8, 14336, 128256, 2, 8192), "small": (512, 8, 8, 8, 1536, 32000, 4, 512),
          "0.6B": (1024, 28, 16, 8, 3072, 151936, 8, 2048), "tiny": (64, 2, 4, 2, 128, 256, 2, 64),
          "tiny-qwen": (64, 2, 4, 2, 128, 256, 2, 64)}
# Head sizes that differ from dim / heads. These models have norms of q and k, rotate halves, and
# tie the embedding to the output.
QWEN = {"0.6B": 128, "tiny-qwen": 32}
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION, "math": SDPBackend.MATH}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALF = torch.bfloat16


def weight(*shape):
    return nn.Parameter(torch.randn(*shape, device=DEVICE) * (shape[-1] ** -0.5 if len(shape) > 1 else 0) + (len(shape) == 1))


class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = weight(dim)

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(HALF), 1e-5)


class Linear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = weight(outputs, inputs)

    def forward(self, x):
        return F.linear(x, self.weight.to(HALF))


class Block(nn.Module):
    def __init__(self, dim, heads, kv, ffn, repeat, qwen):
        super().__init__()
        self.heads, self.kv, self.repeat = heads, kv, repeat
        head = qwen or dim // heads
        self.wq, self.wo = Linear(dim, heads * head), Linear(heads * head, dim)
        self.wk, self.wv = Linear(dim, kv * head), Linear(dim, kv * head)
        self.qn, self.kn = (Norm(head), Norm(head)) if qwen else (nn.Identity(), nn.Identity())
        self.rotate = rotate_halves if qwen else rotate
        self.w1, self.w2, self.w3 = Linear(dim, ffn), Linear(ffn, dim), Linear(dim, ffn)
        self.n1, self.n2 = Norm(dim), Norm(dim)

    def forward(self, x, rope):
        b, t, d = x.shape
        h = self.n1(x)
        q = self.rotate(self.qn(self.wq(h).view(b, t, self.heads, -1)), rope).transpose(1, 2)
        k = self.rotate(self.kn(self.wk(h).view(b, t, self.kv, -1)), rope).transpose(1, 2)
        v = self.wv(h).view(b, t, self.kv, -1).transpose(1, 2)
        if self.repeat:
            k, v = (z.repeat_interleave(self.heads // self.kv, 1) for z in (k, v))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=not self.repeat)
        x = x + self.wo(o.transpose(1, 2).reshape(b, t, -1))
        h = self.n2(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


def rotate(x, rope):
    if rope.is_complex():
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * rope[None, :, None, :]).flatten(3).to(x.dtype)
    a, b = x.float().reshape(*x.shape[:-1], -1, 2).unbind(-1)
    c, s = rope[0][None, :, None, :], rope[1][None, :, None, :]
    return torch.stack((a * c - b * s, b * c + a * s), -1).flatten(3).to(x.dtype)


def rotate_halves(x, rope):
    a, b = x.float().chunk(2, -1)
    c, s = rope[0][None, :, None, :], rope[1][None, :, None, :]
    return torch.cat((a * c - b * s, b * c + a * s), -1).to(x.dtype)


class Llama(nn.Module):
    def __init__(self, dim, layers, heads, kv, ffn, vocabulary, batch, length, repeat, qwen):
        super().__init__()
        self.blocks = nn.ModuleList([Block(dim, heads, kv, ffn, repeat, qwen) for _ in range(layers)])
        self.norm, self.output = Norm(dim), Linear(dim, vocabulary)
        self.table = self.output.weight if qwen else weight(vocabulary, dim)

    def forward(self, tokens, labels, rope):
        x = F.embedding(tokens, self.table.to(HALF))
        for block in self.blocks:
            x = block(x, rope)
        logits = self.output(self.norm(x)).float().flatten(0, 1)
        return F.cross_entropy(logits, labels.flatten())


def ropes(head, length, complex_numbers):
    angle = torch.outer(torch.arange(length).float(), 1e4 ** (-torch.arange(0, head, 2).float() / head))
    rope = torch.polar(torch.ones_like(angle), angle) if complex_numbers else torch.stack((angle.cos(), angle.sin()))
    return rope.to(DEVICE)


def gqa_works(backend, heads, kv, head):
    try:
        q = torch.randn(1, heads, 128, head, device=DEVICE, dtype=HALF, requires_grad=True)
        k, v = (torch.randn(1, kv, 128, head, device=DEVICE, dtype=HALF, requires_grad=True) for _ in range(2))
        with sdpa_kernel(backend):
            F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).sum().backward()
        return True
    except RuntimeError as error:
        print("enable_gqa refused:", error)
        return False


def measure(name, attention, mode):
    dim, layers, heads, kv, ffn, vocabulary, batch, length = MODELS[name]
    backend = BACKENDS[attention]
    mode, *flags = mode.split(":")
    torch.manual_seed(0)
    torch._dynamo.reset()
    gc.collect()
    if DEVICE == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    qwen = QWEN.get(name)
    head = qwen or dim // heads
    repeat = not gqa_works(backend, heads, kv, head)
    model = Llama(*MODELS[name], repeat, qwen)
    parameters = list(model.parameters())
    copt = "copt" in flags
    learn = {"foreach": True, "capturable": DEVICE == "cuda"} if copt else {"fused": True}
    optimizer = torch.optim.AdamW(parameters, lr=torch.tensor(1e-4, device=DEVICE) if copt else 1e-4, weight_decay=0.1, **learn)
    rope = ropes(head, length, not qwen and (mode == "eager" or "complex" in flags))
    batches = [[torch.randint(vocabulary, (batch, length), device=DEVICE) for _ in range(2)] for _ in range(4)]
    forward = model if mode == "eager" else torch.compile(model, mode=None if mode == "default" else mode)

    def update():
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        optimizer.step()

    if copt:
        update = torch.compile(update)

    def step(i):
        if mode not in ("eager", "default"):
            torch.compiler.cudagraph_mark_step_begin()
        tokens, labels = batches[i % 4]
        loss = forward(tokens, labels, rope)
        loss.backward()
        update()
        optimizer.zero_grad(set_to_none=True)
        return loss

    sync = torch.cuda.synchronize if DEVICE == "cuda" else (lambda: None)
    with sdpa_kernel(backend):
        begin = time.time()
        step(0)
        sync()
        first = time.time() - begin
        for i in range(7):
            step(i)
        sync()
        blocks = []
        runs, many = (20, 3) if dim < 1000 else (8, 3)
        for _ in range(many):
            begin = time.perf_counter()
            for i in range(runs):
                loss = step(i)
            sync()
            blocks.append((time.perf_counter() - begin) / runs * 1e3)
        times = []
        if DEVICE == "cuda":
            for i in range(runs):
                a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                a.record()
                loss = step(i)
                b.record()
                times.append((a, b))
            sync()
            times = [a.elapsed_time(b) for a, b in times]
        peak = torch.cuda.max_memory_allocated() / 2**30 if DEVICE == "cuda" else 0
        value = float(loss.detach())
        kernels = ""
        if DEVICE == "cuda" and mode in ("eager", "default", "max-autotune"):
            kernels = profile(step)
    label = ":".join([mode] + flags)
    res(f"rivals {name} {attention} {label}: wall ms {min(blocks):.2f} (blocks {' '.join(f'{b:.2f}' for b in blocks)}), event median "
        f"{statistics.median(times) if times else 0:.2f}, peak {peak:.1f} GiB, first step {first:.0f} s, loss {value:.4f}, "
        f"{'repeated' if repeat else 'grouped'} heads{kernels}")


def profile(step):
    from torch.profiler import ProfilerActivity, profile as run
    try:
        with run(activities=[ProfilerActivity.CUDA]) as p:
            step(0)
            torch.cuda.synchronize()
        kinds, count = {}, 0
        for e in p.events():
            n = e.name.lower()
            if "memset" in n or e.device_time <= 0:
                continue
            count += 1
            kind = ("attention" if any(s in n for s in ("fmha", "flash", "sdpa", "cudnn", "mha"))
                    else "matmul" if any(s in n for s in ("gemm", "nvjet", "cutlass", "cublas", "triton_tem", "triton_mm"))
                    else "optimizer" if any(s in n for s in ("adam", "multi_tensor", "lpnorm")) else "copy" if "memcpy" in n
                    else "rest")
            kinds[kind] = kinds.get(kind, 0) + e.device_time / 1e3
        return f"; {count} kernels, " + ", ".join(f"{k} {v:.2f}" for k, v in sorted(kinds.items()))
    except Exception as error:
        return f"; no profile: {error}"


def run():
    name, attention, *modes = sys.argv[1:]
    if DEVICE == "cpu":
        res("no GPU: trial on the CPU")
    for mode in modes:
        try:
            measure(name, attention, mode)
        except Exception as error:
            res(f"rivals {name} {attention} {mode}: FAILED {type(error).__name__} {str(error)[:200]}".replace("\n", " "))
        gc.collect()


main(run)
