"""A custom wgmma matmul: TFLOP/s, and bits compared with at::mm. Also with SwiGLU in its
epilogue, compared with two matmuls and a SwiGLU kernel."""
import ctypes
import sys

import torch

from nvk import EXACT, Module, check, cmp, cuda, differing, graph_ms, main, read, report, res

BF = torch.bfloat16


def text():
    registers = ", ".join(f"%{i}" for i in range(128))
    outputs = ", ".join(f'"+f"((d)[{i}])' for i in range(128))
    body = ("{ .reg .pred p; setp.ne.b32 p, %130, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" + registers +
            "}, %128, %129, p, 1, 1, 0, 0; }")
    macro = f'#define WGMMA(d, da, db, more) asm volatile("{body}" : {outputs} : "l"(da), "l"(db), "r"((int)(more)))\n'
    return macro + read("gemm.cu")


def tensor_map(x, rows):
    """Makes the tensor map of a [*, k] bf16 matrix: boxes of `rows` x 64, swizzled by 128 bytes."""
    raw = ctypes.create_string_buffer(256)
    start = (ctypes.addressof(raw) + 63) // 64 * 64
    height, width = x.shape
    code = cuda().cuTensorMapEncodeTiled(
        ctypes.c_void_p(start), 9, 2, ctypes.c_void_p(x.data_ptr()), (ctypes.c_uint64 * 2)(width, height), (ctypes.c_uint64 * 1)(width * 2),
        (ctypes.c_uint32 * 2)(64, rows), (ctypes.c_uint32 * 2)(1, 1), 0, 3, 3, 0)
    check(code, "cuTensorMapEncodeTiled")
    return (ctypes.c_char * 128).from_buffer_copy(ctypes.string_at(start, 128))


def one(m, n, k, group):
    tag = f"wgmma {m}x{n}x{k} group {group}"
    a, b = torch.randn(m, k, device="cuda", dtype=BF), torch.randn(n, k, device="cuda", dtype=BF)
    c = torch.full((m, n), float("nan"), device="cuda", dtype=BF)
    module = Module(text(), EXACT + ("-DEPI=0", f"-DGROUP={group}"))
    kernel = module.kernel("gemm", 4 * 49152 + 1024)
    maps = tensor_map(a, 128), tensor_map(b, 128)
    args = (132, 384, *maps, maps[1], c, c, c, m, n, k)
    kernel(*args)
    torch.cuda.synchronize()
    expected = torch.mm(a, b.t())
    flops = 2.0 * m * n * k
    repeats = max(2, min(20, int(5e12 / flops)))
    out = torch.empty_like(expected)
    d = cmp(c, expected)
    own, theirs = graph_ms(lambda: kernel(*args), repeats, 10), graph_ms(lambda: torch.mm(a, b.t(), out=out), repeats, 10)
    res(f"{tag}: differing {d}; {own:.4f} ms ({flops / own / 1e9:.0f} TF) against ATen {theirs:.4f} ms ({flops / theirs / 1e9:.0f} TF)")


def swiglu(m, n, k, group):
    tag = f"wgmma + SwiGLU {m}x2*{n}x{k} group {group}"
    x, w1, w3 = torch.randn(m, k, device="cuda", dtype=BF), *(torch.randn(n, k, device="cuda", dtype=BF) / k ** 0.5 for _ in range(2))
    a, b, h = (torch.full((m, n), float("nan"), device="cuda", dtype=BF) for _ in range(3))
    module = Module(text(), EXACT + ("-DEPI=1", f"-DGROUP={group}"))
    print("\n".join(report(module.log)))
    kernel = module.kernel("gemm", 4 * 49152 + 1024)
    args = (132, 384, tensor_map(x, 128), tensor_map(w1, 128), tensor_map(w3, 128), a, b, h, m, n, k)
    kernel(*args)
    torch.cuda.synchronize()
    a2, b2 = torch.mm(x, w1.t()), torch.mm(x, w3.t())
    h2 = torch.nn.functional.silu(a2) * b2
    d = f"differing a {cmp(a, a2)} b {cmp(b, b2)} h {cmp(h, h2)}"
    flops = 4.0 * m * n * k
    repeats = max(2, min(20, int(5e12 / flops)))
    own = graph_ms(lambda: kernel(*args), repeats, 10)

    def two():
        torch.mm(x, w1.t(), out=a2)
        torch.mm(x, w3.t(), out=b2)

    theirs = graph_ms(two, repeats, 10)
    bytes_ = 6 * m * n / 4.0e9  # a SwiGLU kernel at 4 TB/s, ms
    res(f"{tag}: {d}; {own:.4f} ms ({flops / own / 1e9:.0f} TF) against two of ATen's matmuls {theirs:.4f} + SwiGLU about {bytes_:.4f} ms")


def run():
    torch.manual_seed(7)
    if len(sys.argv) > 1:  # a small one first: does it end, is it right?
        one(256, 256, 64, 8)
        one(1024, 1024, 512, 8)
        return
    one(256, 256, 128, 8)
    one(16384, 8192, 2048, 8)
    one(16384, 8192, 2048, 16)
    one(16384, 2048, 8192, 8)
    one(8192, 8192, 8192, 8)
    swiglu(16384, 8192, 2048, 8)
    swiglu(16384, 8192, 2048, 16)
    swiglu(8192, 2048, 768, 8)


main(run)
