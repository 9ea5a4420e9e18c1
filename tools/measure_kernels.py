#!/usr/bin/env python3
"""Measures matrix products, attention and memory-bound kernels on a CUDA GPU: shapes of Llama 3,
Qwen 3 and DeepSeek V3.

    measure_kernels.py -o h200.json [--seconds 300] [--only matmul|attention|memory]

The result is a file of measured times (docs/cost.md): `heddle sim --costs h200.json` uses it
directly, and fit_kernels.py fits a cluster's constants to it. Needs only torch with CUDA. Every
kernel runs on cold caches, several times; the median counts."""
import argparse
import json
import statistics
import sys
import time

# Model sizes: width, query heads, key heads, head size, feed-forward width, vocabulary.
DENSE = {
    "llama3 8B": (4096, 32, 8, 128, 14336, 128256),
    "llama3 70B": (8192, 64, 8, 128, 28672, 128256),
    "qwen3 0.6B": (1024, 16, 8, 128, 3072, 151936),
    "qwen3 4B": (2560, 32, 8, 128, 9728, 151936),
    "qwen3 8B": (4096, 32, 8, 128, 12288, 151936),
    "qwen3 32B": (5120, 64, 8, 128, 25600, 151936),
}
# Width, heads, latent widths of queries (0: none) and keys, feed-forward, expert, experts per rank,
# chosen experts, vocabulary.
EXPERTS = {
    "deepseek_v3 16B": (2048, 16, 0, 512, 10944, 1408, 8, 6, 102400),
    "deepseek_v3 671B": (7168, 128, 1536, 512, 18432, 2048, 8, 8, 129280),
}
TOKENS = (1024, 4096, 8192, 16384)
SPLITS = (1, 2, 4, 8)
LENGTHS = (1024, 2048, 4096, 8192, 16384)


def linears():
    """(inputs, outputs) of every linear layer, split over ranks of tensor parallelism."""
    seen = {}
    for name, (dim, heads, kv, size, ffn, vocab) in DENSE.items():
        for tp in SPLITS:
            for pair in ((dim, heads * size // tp), (dim, kv * size // tp), (heads * size // tp, dim), (dim, ffn // tp),
                         (ffn // tp, dim), (dim, vocab // tp)):
                seen.setdefault(pair, name)
    for name, (dim, heads, q_rank, kv_rank, ffn, _, _, _, vocab) in EXPERTS.items():
        for tp in SPLITS:
            local = heads // tp
            for pair in ((q_rank or dim, local * 192), (dim, kv_rank + 64), (kv_rank, local * 256), (local * 128, dim),
                         (dim, ffn // tp), (ffn // tp, dim), (dim, vocab // tp)):
                seen.setdefault(pair, name)
    return sorted(seen)


def products():
    """(rows, depth, columns, left transposed, right transposed): forward, and both products of
    backward."""
    shapes = set()
    for inputs, outputs in linears():
        for tokens in TOKENS:
            shapes.add((tokens, inputs, outputs, False, True))
            shapes.add((tokens, outputs, inputs, False, False))
            shapes.add((outputs, tokens, inputs, True, False))
    return sorted(shapes)


def grouped():
    """(rows, depth, columns, groups) of products of experts."""
    shapes = set()
    for dim, _, _, _, _, ffn, experts, chosen, _ in EXPERTS.values():
        for tokens in TOKENS:
            shapes.add((tokens * chosen // 8, dim, ffn, experts))
            shapes.add((tokens * chosen // 8, ffn, dim, experts))
    return sorted(shapes)


def attentions():
    """(batch, query heads, key heads, positions, size)."""
    shapes = set()
    for _, heads, kv, size, _, _ in DENSE.values():
        for tp in SPLITS:
            if kv % tp:
                continue
            for length in LENGTHS:
                for batch in (1, 2):
                    shapes.add((batch, heads // tp, kv // tp, length, size))
    return sorted(shapes)


class Meter:
    def __init__(self, torch, seconds):
        self.torch = torch
        self.stop_at = time.monotonic() + seconds
        # Larger than any cache of the device.
        self.flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
        self.ops, self.skipped = [], []

    def type_of(self, tensor):
        if tensor is None:
            return "none"
        names = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64", "int64": "i64", "int32": "i32",
                 "uint64": "u64", "uint8": "u8", "complex64": "c64"}
        return f"{names[str(tensor.dtype).removeprefix('torch.')]}[{','.join(map(str, tensor.shape))}]"

    def time(self, run):
        torch = self.torch
        for _ in range(3):
            run()
        torch.cuda.synchronize()
        times = []
        begin = time.monotonic()
        # At least 7 runs, and enough for clocks to settle.
        while len(times) < 7 or (time.monotonic() - begin < 0.03 and len(times) < 50):
            self.flush.zero_()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            run()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        return statistics.median(times)

    def add(self, op, operands, run, attrs=None):
        if time.monotonic() > self.stop_at:
            self.skipped.append(f"{op}: out of time")
            return
        try:
            ms = self.time(run)
        except Exception as error:  # Not every device has every kernel; which were left out is part of the result.
            self.skipped.append(f"{op}({', '.join(map(self.type_of, operands))}): {str(error).splitlines()[0]}")
            return
        entry = {"op": op, "operands": [self.type_of(t) for t in operands], "ms": ms}
        if attrs:
            entry["attrs"] = attrs
        self.ops.append(entry)


def measure_products(meter, torch):
    for rows, depth, columns, left_t, right_t in products():
        a = torch.randn((depth, rows) if left_t else (rows, depth), dtype=torch.bfloat16, device="cuda")
        b = torch.randn((columns, depth) if right_t else (depth, columns), dtype=torch.bfloat16, device="cuda")
        a, b = (a.t() if left_t else a), (b.t() if right_t else b)
        meter.add("aten.mm", [a, b], lambda: torch.mm(a, b))
    for rows, depth, columns, groups in grouped():
        a = torch.randn((rows, depth), dtype=torch.bfloat16, device="cuda")
        b = torch.randn((groups, columns, depth), dtype=torch.bfloat16, device="cuda").transpose(1, 2)
        ends = torch.arange(1, groups + 1, dtype=torch.int32, device="cuda") * (rows // groups)
        meter.add("aten._grouped_mm", [a, b, ends, None], lambda: torch._grouped_mm(a, b, offs=ends))


def measure_attention(meter, torch):
    aten = torch.ops.aten
    causal = {"is_causal": "true"}
    for batch, heads, kv, length, size in attentions():
        def tensor(count):
            # With the strides of a model: positions outside heads.
            return torch.randn((batch, length, count, size), dtype=torch.bfloat16, device="cuda").transpose(1, 2)
        q, k, v, grad = tensor(heads), tensor(kv), tensor(kv), tensor(heads)
        flash = lambda: aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)
        meter.add("aten._scaled_dot_product_flash_attention", [q, k, v], flash, causal)
        cudnn = lambda: aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, True)
        meter.add("aten._scaled_dot_product_cudnn_attention", [q, k, v, None], cudnn, causal)
        try:
            out, lse, cq, ck, mq, mk, seed, offset, _ = flash()
            meter.add("aten._scaled_dot_product_flash_attention_backward", [grad, q, k, v, out, lse, cq, ck, seed, offset],
                      lambda: aten._scaled_dot_product_flash_attention_backward(grad, q, k, v, out, lse, cq, ck, mq, mk, 0.0, True,
                                                                                seed, offset), causal)
        except Exception as error:
            meter.skipped.append(f"flash attention backward: {str(error).splitlines()[0]}")
        try:
            out, lse, cq, ck, mq, mk, seed, offset, _ = cudnn()
            meter.add("aten._scaled_dot_product_cudnn_attention_backward", [grad, q, k, v, out, lse, seed, offset, None, cq, ck],
                      lambda: aten._scaled_dot_product_cudnn_attention_backward(grad, q, k, v, out, lse, seed, offset, None, cq, ck,
                                                                                mq, mk, 0.0, True), causal)
        except Exception as error:
            meter.skipped.append(f"cuDNN attention backward: {str(error).splitlines()[0]}")


def measure_memory(meter, torch):
    """Kernels that only move bytes: measures the share of the bandwidth that each reaches."""
    aten = torch.ops.aten

    def make(*shape, dtype=torch.bfloat16):
        return torch.randn(shape, dtype=dtype, device="cuda")
    for rows in (4096, 16384):
        for width in (768, 2048, 4096, 8192):
            x, y, wide = make(1, rows, width), make(1, rows, width), make(1, rows, width, dtype=torch.float32)
            weight = make(width)
            _, rstd = aten._fused_rms_norm(x, [width], weight, 1e-5)
            meter.add("aten._fused_rms_norm", [x, weight], lambda: aten._fused_rms_norm(x, [width], weight, 1e-5))
            meter.add("aten._fused_rms_norm_backward", [y, x, rstd, weight],
                      lambda: aten._fused_rms_norm_backward(y, x, [width], rstd, weight, [True, True]))
            meter.add("aten.silu", [x], lambda: aten.silu(x))
            meter.add("aten.silu_backward", [y, x], lambda: aten.silu_backward(y, x))
            meter.add("aten.add.Tensor", [x, y], lambda: aten.add(x, y))
            meter.add("aten.mul.Tensor", [x, y], lambda: aten.mul(x, y))
            pairs = torch.view_as_complex(wide.view(1, rows, width // 128, 64, 2))
            turns = torch.view_as_complex(make(1, rows, 1, 64, 2, dtype=torch.float32))
            meter.add("aten.mul.Tensor", [pairs, turns], lambda: aten.mul(pairs, turns))
            meter.add("aten._to_copy", [x], lambda: x.to(torch.float32), {"dtype": "f32"})
            meter.add("aten._to_copy", [wide], lambda: wide.to(torch.bfloat16), {"dtype": "bf16"})
        for vocabulary in (32000, 50304, 128256):
            logits = make(rows, vocabulary, dtype=torch.float32)
            scores = aten._log_softmax(logits, 1, False)
            labels = torch.randint(vocabulary, (rows,), device="cuda")
            meter.add("aten._log_softmax", [logits], lambda: aten._log_softmax(logits, 1, False))
            meter.add("aten._log_softmax_backward_data", [logits, scores],
                      lambda: aten._log_softmax_backward_data(logits, scores, 1, torch.float32))
            total, count = aten.nll_loss_forward(scores, labels, None, 2, -100)
            meter.add("aten.nll_loss_forward", [scores, labels, None], lambda: aten.nll_loss_forward(scores, labels, None, 2, -100))
            meter.add("aten.nll_loss_backward", [total, scores, labels, None, count],
                      lambda: aten.nll_loss_backward(total, scores, labels, None, 2, -100, count))
            del logits, scores
    for size in (1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28):
        p, g, m, v = (make(size, dtype=torch.float32) for _ in range(4))
        step = torch.ones((), device="cuda")
        meter.add("aten._fused_adamw_", [p, g, m, v, step],
                  lambda: aten._fused_adamw_([p], [g], [m], [v], [], [step], lr=1e-3, beta1=0.9, beta2=0.95, weight_decay=0.1,
                                             eps=1e-8, amsgrad=False, maximize=False))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--seconds", type=float, default=300, help="stop measuring after so long")
    parser.add_argument("--only", choices=("matmul", "attention", "memory"))
    options = parser.parse_args()
    import torch
    if not torch.cuda.is_available():
        print("no CUDA device", file=sys.stderr)
        return 1
    meter = Meter(torch, options.seconds)
    for name, measure in (("memory", measure_memory), ("attention", measure_attention), ("matmul", measure_products)):
        if options.only in (None, name):
            measure(meter, torch)
    about = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}, {len(meter.ops)} kernels"
    lines = ",\n".join("  " + json.dumps(entry) for entry in meter.ops)
    with open(options.output, "w") as file:
        file.write(f'{{"heddle": "costs 1", "about": {json.dumps(about)}, "ops": [\n{lines}\n]}}\n')
    print(about)
    for line in meter.skipped[:20]:
        print("left out:", line)
    if len(meter.skipped) > 20:
        print(f"and {len(meter.skipped) - 20} more")
    return 0


if __name__ == "__main__":
    sys.exit(main())
