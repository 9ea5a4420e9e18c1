"""NVRTC's milliseconds per kernel, in one process, in threads, and in 8 processes; and loading."""
import ctypes
import subprocess
import sys
import threading
import time

from nvk import EXACT, compile_text, main, nvrtc_version, read, res

KERNELS = [("norm.cu", ("-DD=2048",)), ("norm.cu", ("-DD=768",)), ("loss.cu", ("-DV=32000", "-DC=1")), ("loss.cu", ("-DV=128256", "-DC=4", "-DKEEP=1")),
           ("adamw.cu", ()), ("small.cu", ()), ("loss.cu", ("-DV=128256", "-DC=1")), ("adamw.cu", ("-DUNROLL=1",))]
EMPTY = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] = 1; }'


def one(index):
    name, flags = KERNELS[index % len(KERNELS)]
    return compile_text(read(name), EXACT + flags)


def run():
    if len(sys.argv) > 1:  # a child: compiles its share
        begin = time.perf_counter()
        for index in sys.argv[1:]:
            one(int(index))
        print(f"{(time.perf_counter() - begin) * 1e3:.0f}")
        return
    res(f"nvrtc {nvrtc_version()}")
    first = compile_text(EMPTY)[2]
    res(f"nvrtc empty kernel: first {first:.0f} ms, then {min(compile_text(EMPTY)[2] for _ in range(5)):.0f} ms")
    whole = 0
    for index, (name, flags) in enumerate(KERNELS):
        cubin, _, t = one(index)
        whole += t
        res(f"nvrtc {name} {' '.join(flags)}: {t:.0f} ms, {len(cubin)} bytes")
    begin = time.perf_counter()
    threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    in_threads = (time.perf_counter() - begin) * 1e3
    begin = time.perf_counter()
    children = [subprocess.Popen([sys.executable, __file__, str(i)], stdout=subprocess.PIPE, text=True) for i in range(8)]
    inside = [c.communicate()[0].split("\n")[0] for c in children]
    in_processes = (time.perf_counter() - begin) * 1e3
    res(f"nvrtc the 8 programs: one after the other {whole:.0f} ms, 8 threads {in_threads:.0f} ms, 8 processes {in_processes:.0f} ms "
        f"(compiling alone, each: {' '.join(inside)})")
    try:
        import torch
        from nvk import check, cuda
        torch.zeros(1, device="cuda")
        cubin = one(0)[0]
        times = []
        for _ in range(20):
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            begin = time.perf_counter()
            check(cuda().cuModuleLoadData(ctypes.byref(module), cubin), "load")
            check(cuda().cuModuleGetFunction(ctypes.byref(function), module, b"norm_dx"), "function")
            times.append((time.perf_counter() - begin) * 1e3)
        res(f"nvrtc loading a cubin of {len(cubin)} bytes: first {times[0]:.2f} ms, median {sorted(times)[10]:.2f} ms")
    except Exception as error:
        res(f"nvrtc loading: FAILED {error}")


main(run) if len(sys.argv) == 1 else run()
