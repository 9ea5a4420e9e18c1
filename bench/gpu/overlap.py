"""A weight-gradient matmul alongside a kernel that streams bytes: each alone, both on two
streams, and with reserved SMs."""
import torch

from lt import Matmul
from nvk import L, Module, main, ms, read, res

BF = torch.bfloat16


def fork(first, second):
    """Captures a graph: `first` on the main branch, `second` on another."""
    main_stream, side = torch.cuda.Stream(), torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(main_stream):
        first()
        side.wait_stream(main_stream)
        with torch.cuda.stream(side):
            second()
        main_stream.wait_stream(side)
        torch.cuda.synchronize()
        graph.capture_begin()
        begin = torch.cuda.Event()
        begin.record()
        side.wait_event(begin)
        with torch.cuda.stream(side):
            second()
            end = torch.cuda.Event()
            end.record()
        first()
        main_stream.wait_event(end)
        graph.capture_end()
        value = ms(graph.replay, 20, 3)
    torch.cuda.synchronize()
    return value


def case(module, m, n, k, mib, matmuls):
    dy, x = torch.randn(k, m, device="cuda", dtype=BF), torch.randn(k, n, device="cuda", dtype=BF)
    out = torch.empty(m, n, device="cuda", dtype=BF)
    size = mib << 16
    a, b = torch.randn(size * 4, device="cuda"), torch.empty(size * 4, device="cuda")
    copy, flat = module.kernel("copy"), module.kernel("copy_flat")
    tag = f"overlap {matmuls} x dW {m}x{n}x{k} beside {2 * mib} MiB"

    def aten():
        for _ in range(matmuls):
            torch.mm(dy.t(), x, out=out)

    stream_flat = lambda: flat((size + 1023) // 1024, 256, a, b, L(size))
    alone, bytes_ = ms(aten), ms(stream_flat)
    both = fork(aten, stream_flat)
    both2 = fork(stream_flat, aten)
    res(f"{tag}: matmul alone {alone:.3f} ms, copy alone {bytes_:.3f} ms ({2 * mib * 2**20 / bytes_ / 1e9:.2f} TB/s), one after the other "
        f"{alone + bytes_:.3f}, two streams {both:.3f}, copy first {both2:.3f}: gain {alone + bytes_ - min(both, both2):.3f} ms")
    for free in (4, 8, 16, 32):
        try:
            mm = Matmul(m, n, k, True, False, sms=132 - free)
            own = lambda: [mm.run(0, dy, x, out) for _ in range(matmuls)]
            for per in (2, 4):
                small = lambda: copy(free * per, 512, a, b, L(size))
                t, c = ms(own, 10), ms(small, 10)
                f = fork(own, small)
                g = fork(small, own)
                res(f"{tag}: {free} SMs left, {per} blocks of 512 each: matmul {t:.3f}, copy on them alone {c:.3f} "
                    f"({2 * mib * 2**20 / c / 1e9:.2f} TB/s), both {f:.3f}, copy first {g:.3f}: gain {alone + bytes_ - min(f, g):.3f} ms")
        except Exception as error:
            res(f"{tag}: {free} SMs: FAILED {type(error).__name__} {str(error)[:150]}")
    wide = lambda: copy(132, 512, a, b, L(size))
    c = ms(wide, 10)
    res(f"{tag}: a copy of 132 blocks x 512 threads alone {c:.3f} ms, beside ATen's matmul {fork(wide, aten):.3f}")


def pairs(m, n, k):
    """Two small dW matmuls in parallel (160M)."""
    t = [(torch.randn(k, m, device="cuda", dtype=BF), torch.randn(k, n, device="cuda", dtype=BF), torch.empty(m, n, device="cuda", dtype=BF))
         for _ in range(8)]

    def half(which):
        for dy, x, out in t[which * 4:which * 4 + 4]:
            torch.mm(dy.t(), x, out=out)

    def all_of_them():
        half(0)
        half(1)

    from nvk import graph_ms
    serial = graph_ms(all_of_them, 1, 10)
    parallel = fork(lambda: half(0), lambda: half(1))
    res(f"overlap 8 dW {m}x{n}x{k}: one stream {serial * 1e3:.1f} us, two streams {parallel * 1e3:.1f} us")


def run():
    module = Module(read("small.cu"))
    case(module, 8192, 2048, 16384, 512, 1)   # w1's gradient next to a copy with the bytes of a SwiGLU backward
    case(module, 2048, 2048, 16384, 128, 2)
    case(module, 2048, 768, 8192, 48, 2)
    for shape in ((768, 768, 8192), (256, 768, 8192), (2048, 768, 8192), (768, 2048, 8192)):
        pairs(*shape)


main(run)
