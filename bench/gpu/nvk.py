"""Compiles CUDA C++ to cubins (NVRTC) and launches kernels on torch's stream, through ctypes
only. Also helpers for timing and results."""
import ctypes
import glob
import os
import site
import statistics
import sys
import sysconfig
import time

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.environ.get("OUT", "/tmp")
ARCH = "sm_90a"
EXACT = ("--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--fmad=true")


def res(*parts):
    """Prints a result and immediately appends it to $OUT/results.txt."""
    line = " ".join(str(p) for p in parts)
    print(line, flush=True)
    with open(os.path.join(OUT, "results.txt"), "a") as file:
        file.write(line + "\n")


def _folders():
    roots = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")} | set(site.getsitepackages())
    found = []
    for root in roots:
        for pattern in ("nvidia/cu13/lib", "nvidia/*/lib", "torch/lib"):
            found += glob.glob(os.path.join(root, pattern))
    return found + ["/usr/local/cuda/lib64", "/usr/local/cuda-13.0/lib64"]


def find_library(name):
    """Loads libNAME.so.13 (or .so.*) from the wheels, then from the toolkit, then through the
    loader."""
    for folder in _folders():
        for path in sorted(glob.glob(os.path.join(folder, f"lib{name}.so*"))):
            if "alt" not in os.path.basename(path):
                return path
    return f"lib{name}.so.13"


_nvrtc = None


def nvrtc():
    global _nvrtc
    if _nvrtc is None:
        path = find_library("nvrtc")
        builtins = find_library("nvrtc-builtins")
        if os.path.exists(builtins):
            ctypes.CDLL(builtins, mode=ctypes.RTLD_GLOBAL)
        _nvrtc = ctypes.CDLL(path)
        _nvrtc.path = path
    return _nvrtc


def nvrtc_version():
    a, b = ctypes.c_int(), ctypes.c_int()
    nvrtc().nvrtcVersion(ctypes.byref(a), ctypes.byref(b))
    return f"{a.value}.{b.value} {nvrtc().path}"


def compile_text(text, options=EXACT, verbose=True):
    """(cubin bytes, log, milliseconds)"""
    lib = nvrtc()
    begin = time.perf_counter()
    program = ctypes.c_void_p()
    code = lib.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"k.cu", 0, None, None)
    assert code == 0, f"nvrtcCreateProgram {code}"
    flags = [f"--gpu-architecture={ARCH}", "--std=c++17", *options]
    if verbose:
        flags.append("--ptxas-options=-v")
    array = (ctypes.c_char_p * len(flags))(*[f.encode() for f in flags])
    code = lib.nvrtcCompileProgram(program, len(flags), array)
    size = ctypes.c_size_t()
    lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    lib.nvrtcGetProgramLog(program, log)
    log = log.value.decode(errors="replace")
    if code:
        raise RuntimeError(f"NVRTC {code}\n{log}")
    lib.nvrtcGetCUBINSize(program, ctypes.byref(size))
    cubin = ctypes.create_string_buffer(size.value)
    lib.nvrtcGetCUBIN(program, cubin)
    lib.nvrtcDestroyProgram(ctypes.byref(program))
    return cubin.raw, log, (time.perf_counter() - begin) * 1e3


_cuda = None


def cuda():
    global _cuda
    if _cuda is None:
        _cuda = ctypes.CDLL("libcuda.so.1")
    return _cuda


def check(code, what):
    if code:
        name = ctypes.c_char_p()
        cuda().cuGetErrorString(code, ctypes.byref(name))
        raise RuntimeError(f"{what}: {code} {name.value}")


class L(int):
    """An argument of 64 bits."""


def stream():
    import torch
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


class LaunchAttribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_char * 64)]


class LaunchConfig(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint) for n in ("gx", "gy", "gz", "bx", "by", "bz", "smem")] + [
        ("stream", ctypes.c_void_p), ("attrs", ctypes.POINTER(LaunchAttribute)), ("count", ctypes.c_uint)]


def _pack(args):
    import torch
    values = []
    for a in args:
        if isinstance(a, torch.Tensor):
            values.append(ctypes.c_uint64(a.data_ptr()))
        elif isinstance(a, L):
            values.append(ctypes.c_int64(a))
        elif isinstance(a, bool) or isinstance(a, int):
            values.append(ctypes.c_int32(a))
        elif isinstance(a, float):
            values.append(ctypes.c_float(a))
        else:
            values.append(a)
    pointers = (ctypes.c_void_p * len(values))(*[ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values])
    return values, pointers


class Kernel:
    def __init__(self, function, name, smem):
        self.function, self.name, self.smem = function, name, smem

    def __call__(self, grid, block, *args, pdl=False):
        grid = (grid,) if isinstance(grid, int) else grid
        block = (block,) if isinstance(block, int) else block
        grid, block = (*grid, 1, 1)[:3], (*block, 1, 1)[:3]
        values, pointers = _pack(args)
        if not pdl:
            check(cuda().cuLaunchKernel(self.function, *[ctypes.c_uint(v) for v in (*grid, *block, self.smem)], stream(),
                                        pointers, None), self.name)
            return
        attribute = LaunchAttribute(6, b"", (1).to_bytes(4, "little"))
        config = LaunchConfig(*grid, *block, self.smem, stream().value, ctypes.pointer(attribute), 1)
        check(cuda().cuLaunchKernelEx(ctypes.byref(config), self.function, pointers, None), self.name)


class Module:
    def __init__(self, text, options=EXACT):
        import torch
        torch.cuda.init()
        torch.cuda.current_stream().synchronize()
        torch.zeros(1, device="cuda")
        self.cubin, self.log, self.ms = compile_text(text, options)
        self.module = ctypes.c_void_p()
        check(cuda().cuModuleLoadData(ctypes.byref(self.module), self.cubin), "cuModuleLoadData")

    def kernel(self, name, smem=0):
        function = ctypes.c_void_p()
        check(cuda().cuModuleGetFunction(ctypes.byref(function), self.module, name.encode()), name)
        if smem > 48 * 1024:
            check(cuda().cuFuncSetAttribute(function, 8, ctypes.c_int(smem)), name + " smem")
        return Kernel(function, name, smem)


def report(log):
    """Returns registers, spills and shared memory by kernel name, from ptxas' output."""
    lines, name = [], ""
    for line in log.splitlines():
        if "Compiling entry function" in line:
            name = line.split("'")[1]
        elif "bytes stack frame" in line:
            spill = line.strip()
        elif "Used" in line and "registers" in line:
            lines.append(f"{name}: {line.split(':', 1)[-1].strip()}; {spill}")
    return lines


def read(name):
    with open(os.path.join(HERE, name)) as file:
        return file.read()


def ms(function, runs=20, warm=3):
    """Returns the median milliseconds, by events. A run should exceed 20 us or be a graph."""
    import torch
    for _ in range(warm):
        function()
    pairs = []
    for _ in range(runs):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        function()
        b.record()
        pairs.append((a, b))
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in pairs)


_side = None


def graph_ms(function, repeats=10, runs=10):
    """Returns milliseconds per call, from a CUDA graph of `repeats` calls, captured on one side
    stream."""
    import torch
    global _side
    _side = _side or torch.cuda.Stream()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(_side):
        function()
        torch.cuda.synchronize()
        graph.capture_begin()
        for _ in range(repeats):
            function()
        graph.capture_end()
        value = ms(graph.replay, runs=runs, warm=2) / repeats
    torch.cuda.synchronize()
    return value


def differing(a, b):
    """Returns the number of elements whose bits differ and that are not both NaN."""
    import torch
    kind = {1: torch.int8, 2: torch.int16, 4: torch.int32}[a.element_size()]
    total = 0
    for x, y in zip(a.flatten().split(1 << 28), b.flatten().split(1 << 28)):
        bad = (x.view(kind) != y.view(kind)) & ~(x.isnan() & y.isnan())
        total += int(bad.sum())
    return total


def cmp(a, b):
    """Returns "0", or the number of differing elements and the distance of the tensors (of order
    1 for an error, 1e-3 for another rounding)."""
    import torch
    count = differing(a, b)
    if not count:
        return "0"
    x, y = (t.flatten()[:1 << 28].float().nan_to_num(0, 0, 0) for t in (a, b))
    y = y.clamp(-1e15, 1e15)
    distance = float((x.clamp(-1e15, 1e15) - y).norm() / (y.norm() + 1e-30))
    kind = {2: torch.int16, 4: torch.int32}[a.element_size()]
    where = (a.flatten().view(kind)[:1 << 28] != b.flatten().view(kind)[:1 << 28]).nonzero()[:3].flatten().tolist()
    shown = ", ".join(f"[{i}] {float(a.flatten()[i])!r} / {float(b.flatten()[i])!r}" for i in where)
    return f"{count} (relative distance {distance:.1e}; {shown})"


def main(function):
    """Runs a probe and reports its exceptions as result lines."""
    import traceback
    begin = time.time()
    name = os.path.basename(sys.argv[0])[:-3] + (" " + " ".join(sys.argv[1:]) if sys.argv[1:] else "")
    try:
        function()
        res(f"{name}: done in {time.time() - begin:.0f} s")
    except Exception as error:
        traceback.print_exc()
        res(f"{name}: FAILED {type(error).__name__}: {str(error)[:300]}".replace("\n", " "))
        sys.exit(1)
