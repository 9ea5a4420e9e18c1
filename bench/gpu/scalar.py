"""Compares scalar functions with ATen exhaustively: every bf16, every pair of bf16, every f32;
samples for ternary functions."""
import sys
import time

import torch

from nvk import L, Module, main, read, res

N = 1 << 26
BF = torch.bfloat16


def run():
    module = Module(read("scalar.cu"))
    count, example = torch.zeros(3, dtype=torch.int64, device="cuda"), torch.zeros(1, dtype=torch.int64, device="cuda")
    kernels = {}

    def judge(name, inputs, reference, n):
        kernel = kernels.setdefault(name, module.kernel(name) if name not in kernels else kernels[name])
        kernel((n + 255) // 256, 256, *inputs, reference, L(n), count, example)

    def begin():
        count.zero_()
        example.zero_()
        return time.time()

    def end(label, total, start, show=None):
        torch.cuda.synchronize()
        bad, nans, looked = count.tolist()
        text = f"; for example {show(int(example))}" if bad and show else ""
        res(f"scalar {label}: {bad} of {looked} differ{'' if looked == total else f' (SHOULD BE {total})'}, {nans} NaN of other bits, {time.time() - start:.1f} s{text}")

    every = torch.arange(65536, dtype=torch.int32, device="cuda").to(torch.int16).view(BF)
    aten = {"exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "sigmoid": torch.sigmoid,
            "silu": torch.nn.functional.silu, "neg": torch.neg, "reciprocal": torch.reciprocal, "tanh": torch.tanh}
    two = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div,
           "silu_backward": torch.ops.aten.silu_backward}
    for name, function in aten.items():
        start = begin()
        judge("u16_" + name, (every,), function(every), 65536)
        end(f"{name} bf16 -> bf16", 65536, start, lambda i: f"x {float(every[i])!r} ATen {float(function(every)[i])!r}")
    start = begin()
    judge("u16_silu", (every,), torch.sigmoid(every), 65536)
    end("CONTROL, must differ: silu against sigmoid", 65536, start)
    start = begin()
    judge("to_f32", (every,), every.float(), 65536)
    end("cast bf16 -> f32", 65536, start)
    base = torch.arange(N, dtype=torch.int32, device="cuda")
    chunks = (1 << 32) // N

    def pattern(c):
        first = c * N
        return (base + (first - (1 << 32) if first >= 1 << 31 else first)).view(torch.float32)

    for name, function in list(aten.items()) + [("to_bf16", None)]:
        start = begin()
        for c in range(chunks):
            x = pattern(c)
            if function is None:
                judge("to_bf16", (x,), x.to(BF), N)
            else:
                judge("u32_" + name, (x,), function(x), N)
        end(f"{name} f32 (all 2^32)", 1 << 32, start)
    rows = N // 65536
    for name, function in two.items():
        start = begin()
        for c in range(65536 // rows):
            x = every[c * rows:(c + 1) * rows].repeat_interleave(65536)
            y = every.repeat(rows)
            judge("b16_" + name, (x, y), function(x, y), N)
        end(f"{name} bf16, bf16 (all 2^32 pairs)", 1 << 32, start)
    torch.manual_seed(3)

    def bits():
        return torch.randint(-(1 << 31), (1 << 31) - 1, (N,), device="cuda", dtype=torch.int64).to(torch.int32).view(torch.float32)

    special = torch.tensor([0, 1, 2, 0x7fffff, 0x800000, 0x3f800000, 0x3f7fffff, 0x7f7fffff, 0x7f800000, 0x7fc00000, 0x33800000,
                            0x42b17218, 0x42ce8ed0, 0x34000000, 0x4b000000, 0x3e800000], device="cuda")
    special = torch.cat((special, special - (1 << 31))).to(torch.int32).view(torch.float32)
    for name, function in two.items():
        start = begin()
        for c in range(4):
            x, y = bits(), bits() if c < 3 else torch.randn(N, device="cuda")
            judge("b32_" + name, (x, y), function(x, y), N)
            x, y = torch.randn(N, device="cuda") * 8, torch.randn(N, device="cuda") * 8
            judge("b32_" + name, (x, y), function(x, y), N)
        x, y = special.repeat_interleave(32), special.repeat(32)
        judge("b32_" + name, (x, y), function(x, y), 1024)
        end(f"{name} f32, f32 (2^29 samples, half random bits)", 8 * N + 1024, start)
    for name in ("c_mul", "c_mul_other"):
        for conj in (False, True):
            start = begin()
            for c in range(4):
                angle = torch.rand(N // 2, device="cuda") * 6.3
                y = torch.polar(torch.ones_like(angle), angle)
                x = (torch.randn(N, device="cuda") if c < 3 else bits()).to(BF).float()
                z = torch.view_as_complex(x.view(-1, 2))
                got = z * (y.conj() if conj else y)
                w = torch.view_as_real(y.conj().resolve_conj() if conj else y).contiguous()
                judge(name, (x, w), torch.view_as_real(got).contiguous(), N // 2)
            end(f"{name} complex multiplication of RoPE{' by the conjugate' if conj else ''} (2^27 samples)", 2 * N, start)
    # the broadcast form that a model has: [b, t, h, d/2] * [1, t, 1, d/2]
    start = begin()
    x = torch.randn(4, 4096, 32, 64, device="cuda").to(BF).float()
    angle = torch.outer(torch.arange(4096, device="cuda").float(), 1e4 ** (-torch.arange(0, 64, 2, device="cuda").float() / 64))
    y = torch.polar(torch.ones_like(angle), angle)
    got = torch.view_as_complex(x.view(4, 4096, 32, 32, 2)) * y[None, :, None, :]
    w = torch.view_as_real(y[None, :, None, :].expand(4, 4096, 32, 32)).contiguous()
    judge("c_mul", (x, w), torch.view_as_real(got).contiguous(), x.numel() // 2)
    end("c_mul in the shape of a model", x.numel() // 2, start)


main(run)
