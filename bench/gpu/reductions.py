"""reductions.py OUT.json: times of ATen's sums, copies and ops on routed rows, on one GPU.

Shapes are those of DeepSeek V3 16B with 4 x 4096 tokens, and others with the same access pattern. A
case has the median of cold runs and the GB/s of its operands and results; the first of each kind has
the names of its kernels. Ops that add in an order of their own run in both modes of
torch.use_deterministic_algorithms."""
import json
import os
import sys
import time

import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
from measure_kernels import Meter  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BF16, F32 = torch.bfloat16, torch.float32


def make(*shape, dtype=BF16):
    return torch.randn(shape, dtype=dtype, device=DEVICE)


class Cases:
    def __init__(self, scale):
        self.scale = scale
        self.meter = Meter(torch, 60) if DEVICE == "cuda" else None
        self.out = []
        self.profiled = set()

    def add(self, op, operands, run, **attrs):
        begin = time.monotonic()
        result = run()
        results = result if isinstance(result, (tuple, list)) else [result]
        moved = sum(t.numel() * t.element_size() for t in [*operands, *results] if torch.is_tensor(t))
        entry = {"op": op, "operands": [f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in operands], "attrs": attrs}
        del result, results
        if self.meter:
            ms = self.meter.time(run)
            entry |= {"ms": ms, "gb_per_s": round(moved / ms / 1e6, 1)}
            kind = op, attrs.get("deterministic"), attrs.get("layout")
            if kind not in self.profiled:
                self.profiled.add(kind)
                entry["kernels"] = self.kernels(run)
        self.out.append(entry)
        print(f"{entry.get('ms', 0):9.4f} ms {entry.get('gb_per_s', 0):8.1f} GB/s {op} {' '.join(entry['operands'])} {attrs} "
              f"({time.monotonic() - begin:.2f} s)", flush=True)

    def kernels(self, run):
        """Names and microseconds."""
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            run()
            torch.cuda.synchronize()
        return [[event.name, event.device_time_total] for event in profile.events()
                if event.device_type == torch.autograd.DeviceType.CUDA]

    def both(self, op, operands, run, **attrs):
        for deterministic in (False, True):
            torch.use_deterministic_algorithms(deterministic)
            self.add(op, operands, run, deterministic=deterministic, **attrs)
        torch.use_deterministic_algorithms(False)


def sums(cases):
    def one(x, dims, **more):
        cases.add("sum", [x], lambda: x.sum(dims, keepdim=True), dim=dims, **more)
    tokens = 16384 // cases.scale
    # Chosen experts of a token, with the elements of a row innermost.
    for chosen, width in ((2, 2048), (4, 2048), (6, 2048), (8, 2048), (6, 1024), (8, 4096)):
        one(make(tokens, chosen, width, dtype=F32), [1])
    one(make(tokens, 6, 2048), [1])
    # Rows: gradients of the weights of experts, then narrow ones.
    for rows, width in ((tokens * 6, 2048), (tokens, 2048), (tokens, 512), (tokens * 6, 64), (tokens * 6, 8), (tokens, 6), (tokens, 64)):
        one(make(rows, width, dtype=F32), [1])
    one(make(tokens * 6, 2048), [1])
    # Columns.
    for rows, width, dtype in ((tokens, 2048, F32), (tokens, 2048, BF16), (tokens, 64, F32), (tokens * 6, 64, F32), (tokens, 8192, BF16)):
        one(make(rows, width, dtype=dtype), [0])
    # Heads that share a part of the keys: positions outside heads, then heads outside positions.
    for batch, length, heads, size in ((4, 4096, 16, 64), (1, 4096, 128, 64), (4, 4096, 4, 128)):
        x = make(batch, length // cases.scale, heads, size)
        one(x, [2], layout="positions, heads")
        one(x.transpose(1, 2).contiguous().transpose(1, 2), [2], layout="heads, positions")
    one(make(4, 4096 // cases.scale, 64, dtype=F32), [1])
    one(make(tokens, dtype=F32), [0])
    one(make(tokens * 2048, dtype=F32), [0])


def rows(cases):
    tokens = 16384 // cases.scale
    for chosen, width, dtype in ((6, 2048, BF16), (6, 2048, F32), (2, 2048, BF16), (8, 4096, BF16), (6, 512, BF16), (1, 2048, BF16)):
        experts = torch.rand(tokens, 64, device=DEVICE).topk(chosen, -1).indices.flatten()
        order = torch.sort(experts, stable=True).indices
        back = torch.sort(order, stable=True).indices
        token = torch.div(order, chosen, rounding_mode="floor")
        x, zeros = make(tokens, width, dtype=dtype), torch.zeros(tokens, width, dtype=dtype, device=DEVICE)
        picked, wide = make(tokens * chosen, width, dtype=dtype), torch.zeros(tokens * chosen, width, dtype=dtype, device=DEVICE)
        cases.add("index_select", [x, token], lambda: x.index_select(0, token))
        cases.both("index_add", [zeros, token, picked], lambda: zeros.index_add(0, token, picked))
        cases.both("index_add", [wide, back, picked], lambda: wide.index_add(0, back, picked), places="once each")
        del picked, wide
    scores, experts = make(tokens, 64, dtype=F32), torch.rand(tokens, 64, device=DEVICE).topk(6, -1).indices
    chosen = experts.flatten()
    grad = make(tokens, 6, dtype=F32)
    zeros = torch.zeros(tokens, 64, device=DEVICE)
    cases.add("topk", [scores], lambda: torch.topk(scores, 6, -1, True, False), k=6)
    cases.add("softmax", [scores], lambda: torch.softmax(scores, -1))
    cases.add("gather", [scores, experts], lambda: scores.gather(1, experts))
    cases.both("scatter_add", [zeros, experts, grad], lambda: zeros.scatter_add(1, experts, grad))
    cases.add("sort", [chosen], lambda: torch.sort(chosen, stable=True))
    cases.add("bincount", [chosen], lambda: torch.bincount(chosen, minlength=64))
    counts = torch.bincount(chosen, minlength=64)
    cases.add("cumsum", [counts], lambda: torch.cumsum(counts, 0))


def others(cases):
    tokens = 16384 // cases.scale
    labels = torch.randint(102400, (4, tokens // 4), device=DEVICE)
    grad = make(4, tokens // 4, 2048)
    cases.add("embedding_dense_backward", [grad, labels], lambda: torch.ops.aten.embedding_dense_backward(grad, labels, 102400, -1, False))
    for vocabulary, width in ((32000, 4096), (128256, 2048)):
        half = grad[..., :width] if width <= 2048 else make(2, tokens // 4, width)
        few = labels[:half.size(0)] % vocabulary
        cases.add("embedding_dense_backward", [half, few],
                  lambda: torch.ops.aten.embedding_dense_backward(half, few, vocabulary, -1, False), vocabulary=vocabulary)
    expert = make(max(1, 64 // cases.scale), 2048, 1408)
    wide = expert.float()
    cases.add("norm", [wide], lambda: torch.linalg.vector_norm(wide))
    cases.add("norm", [expert], lambda: torch.linalg.vector_norm(expert, dtype=F32))
    cases.add("foreach_norm", [wide] * 3, lambda: torch._foreach_norm([wide] * 3))
    cases.add("to", [expert], lambda: expert.float())
    cases.add("to", [expert.transpose(1, 2)], lambda: expert.transpose(1, 2).float(), layout="transposed")
    turned = expert.transpose(1, 2)
    cases.add("to_contiguous", [turned], lambda: turned.to(F32, memory_format=torch.contiguous_format), layout="transposed")
    del wide
    routed, share = make(tokens, 6, 2048, dtype=F32), make(tokens, 6, 1, dtype=F32)
    cases.add("mul", [routed, share], lambda: routed * share)
    cases.add("mul", [routed, routed], lambda: routed * routed)
    half = routed.to(BF16)
    cases.add("to", [half], lambda: half.float())
    out = make(tokens, 1, 2048, dtype=F32).expand(-1, 6, -1)
    cases.add("mul", [out, share], lambda: out * share, layout="one of six rows")
    cases.add("mul", [out, routed], lambda: out * routed, layout="one of six rows")


def copies(cases):
    """Keys and queries of latent attention are joined from two parts of a head, and padded."""
    tokens = 4096 // cases.scale

    def joined(batch, length, heads, sizes, dtype=BF16, shared=False):
        parts = [make(batch, length, 1 if shared and i else heads, size, dtype=dtype).expand(-1, -1, heads, -1)
                 for i, size in enumerate(sizes)]
        cases.add("cat", parts, lambda: torch.cat(parts, -1), shared=shared)
    for sizes in ((128, 64), (64, 64), (128, 128), (512, 64), (64, 32), (1024, 1024)):
        joined(4, tokens, 16, sizes)
    joined(1, tokens, 128, (128, 64))
    joined(4, tokens // 4, 16, (128, 64))
    joined(4, tokens, 16, (128, 64), dtype=F32)
    joined(4, tokens, 16, (128, 64), shared=True)
    # A view of columns, as of a product whose columns are keys and values.
    wide = make(4, tokens, 16, 256)
    parts = [wide[..., :128], make(4, tokens, 1, 64).expand(-1, -1, 16, -1)]
    cases.add("cat", parts, lambda: torch.cat(parts, -1), layout="columns of 256")
    halves = make(4, tokens, 16, 128).chunk(2, -1)
    cases.add("cat", [*halves], lambda: torch.cat([-halves[1], halves[0]], -1), layout="rotated halves")
    for rows in (4 * tokens, tokens):
        flat = [make(rows, 2048) for _ in range(3)]
        cases.add("cat", flat, lambda: torch.cat(flat, 0), layout="first dimension")
    x = make(4, tokens, 16, 128)
    cases.add("constant_pad_nd", [x], lambda: torch.ops.aten.constant_pad_nd(x, [0, 64]))
    cases.add("constant_pad_nd", [wide[..., 128:]], lambda: torch.ops.aten.constant_pad_nd(wide[..., 128:], [0, 64]), layout="columns")
    cases.add("slice_backward", [x], lambda: torch.ops.aten.slice_backward(x, [4, tokens, 16, 192], 3, 0, 128, 1))
    cases.add("clone", [x], lambda: x.transpose(1, 2).clone(memory_format=torch.contiguous_format), layout="heads, positions")
    cases.add("clone", [wide[..., :128]], lambda: wide[..., :128].clone(memory_format=torch.contiguous_format), layout="columns")
    cases.add("new_zeros", [x], lambda: torch.zeros_like(x))
    for count in (1 << 12, 1 << 14, 1 << 17, 1 << 20, 1 << 23):
        numbers = torch.randint(64, (count // cases.scale or 1,), device=DEVICE)
        cases.add("sort", [numbers], lambda: torch.sort(numbers, stable=True))
        bins = torch.arange(64, device=DEVICE).unsqueeze(1)
        if count <= 1 << 20:
            cases.add("bins", [numbers], lambda: (bins == numbers.unsqueeze(0)).sum(1))
    for experts, chosen in ((8, 2), (64, 6), (256, 8)):
        scores = make(4 * tokens, experts, dtype=F32)
        cases.add("topk", [scores], lambda: torch.topk(scores, chosen, -1, True, False), k=chosen)


def grouped(cases):
    tokens, experts = 16384 * 6 // cases.scale, 64
    ends = (torch.arange(1, experts + 1, device=DEVICE) * (tokens // experts)).to(torch.int32)
    for inputs, outputs in ((2048, 1408), (1408, 2048)):
        x, grad, weight = make(tokens, inputs), make(tokens, outputs), make(experts, outputs, inputs)
        cases.add("grouped_mm", [x, weight.transpose(1, 2), ends], lambda: torch._grouped_mm(x, weight.transpose(1, 2), offs=ends))
        cases.add("grouped_mm", [grad, weight, ends], lambda: torch._grouped_mm(grad, weight, offs=ends))
        cases.add("grouped_mm", [grad.t(), x, ends], lambda: torch._grouped_mm(grad.t(), x, offs=ends))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.manual_seed(0)
    # Without a GPU, small shapes check the script.
    cases = Cases(1 if DEVICE == "cuda" else 256)
    for part in (sums, rows, copies, others) + ((grouped,) if DEVICE == "cuda" else ()):
        part(cases)
        if DEVICE == "cuda":
            torch.cuda.empty_cache()
    name = torch.cuda.get_device_name() if DEVICE == "cuda" else "no GPU"
    with open(sys.argv[1], "w") as file:
        json.dump({"about": f"{name}, torch {torch.__version__}", "cases": cases.out}, file, indent=1)


main()
