"""A CUDA graph of 400 small kernels: time per node and gap between nodes, with and without
programmatic dependent launch."""
import time

import torch

from nvk import L, Module, main, ms, read, res

NODES = 400


def capture(function):
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(side):
        function()
        torch.cuda.synchronize()
        graph.capture_begin()
        for _ in range(NODES):
            function()
        graph.capture_end()
    return graph


def run():
    module = Module(read("small.cu"))
    k = {name: module.kernel(name) for name in ("spin", "spin_pdl", "spin_late", "bump", "bump_pdl")}
    x = torch.zeros(64 << 20, device="cuda")
    # Warms up the clocks.
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    for _ in range(20):
        a @ a
    cases = []
    for cycles in (0, 4000):
        for blocks in (1, 132, 1056):
            cases += [(f"spin {cycles} cycles, {blocks} blocks", "spin", (blocks, 256, L(cycles)), False),
                      (f"spin {cycles} cycles, {blocks} blocks, PDL early", "spin_pdl", (blocks, 256, L(cycles)), True),
                      (f"spin {cycles} cycles, {blocks} blocks, PDL late", "spin_late", (blocks, 256, L(cycles)), True)]
    for mib in (1, 4, 12, 64):
        n = mib * 65536
        cases += [(f"add 1 over {mib} MiB", "bump", (n // 256, 256, x, L(n)), False),
                  (f"add 1 over {mib} MiB, PDL", "bump_pdl", (n // 256, 256, x, L(n)), True)]
    alone = {}
    for label, name, args, pdl in cases:
        try:
            graph = capture(lambda: k[name](*args, pdl=pdl))
            node = ms(graph.replay, 20, 3) / NODES * 1e3
            begin = time.perf_counter()
            graph.replay()
            host = (time.perf_counter() - begin) * 1e6
            torch.cuda.synchronize()
            extra = ""
            if name.startswith("spin") and args[2]:
                blocks, cycles = args[0], int(args[2])
                waves = 1 if blocks <= 1056 else 2
                key = (blocks, cycles)
                if key not in alone:  # one kernel as long as all of them: no gaps
                    alone[key] = ms(lambda: k["spin"](blocks, 256, L(cycles * NODES)), 5, 1) / NODES * 1e3
                extra = f", work {alone[key]:.3f}, gap {node - alone[key]:.3f} us"
            begin = time.perf_counter()
            for _ in range(NODES):
                k[name](*args, pdl=pdl)
            launch = (time.perf_counter() - begin) / NODES * 1e6
            torch.cuda.synchronize()
            res(f"graph {label}: {node:.3f} us a node{extra}; replay call {host:.0f} us of host, a launch through ctypes {launch:.1f} us")
            del graph
        except Exception as error:
            res(f"graph {label}: FAILED {type(error).__name__} {str(error)[:150]}")
    # Checks that order is kept, with 400 dependent additions.
    for name, pdl in (("bump", False), ("bump_pdl", True)):
        x.zero_()
        graph = capture(lambda: k[name](1024, 256, x, L(262144), pdl=pdl))
        x.zero_()
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        res(f"graph {name}: sums right: {bool((x[:1048576] == NODES).all())}")


main(run)
