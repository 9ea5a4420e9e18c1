"""cuBLASLt through ctypes. Row-major C[m,n] = op(A)[m,k] op(B)[k,n]; bf16 input, bf16 or f32
output, f32 accumulation."""
import ctypes

import torch

from nvk import find_library, stream

BF16, F32 = 14, 0
P = ctypes.c_void_p


class Result(ctypes.Structure):
    _fields_ = [("algo", ctypes.c_uint64 * 8), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int), ("waves", ctypes.c_float),
                ("reserved", ctypes.c_int * 4)]


assert ctypes.sizeof(Result) == 96
_lib = _handle = _space = None
SPACE = 32 << 20


def library():
    global _lib, _handle, _space
    if _lib is None:
        torch.zeros(1, device="cuda")
        torch.mm(torch.zeros(16, 16, device="cuda"), torch.zeros(16, 16, device="cuda"))  # loads torch's cuBLAS
        try:
            _lib = ctypes.CDLL("libcublasLt.so.13", mode=ctypes.RTLD_GLOBAL)
        except OSError:
            _lib = ctypes.CDLL(find_library("cublasLt"))
        _lib.cublasLtGetVersion.restype = ctypes.c_size_t
        _handle = P()
        ok(_lib.cublasLtCreate(ctypes.byref(_handle)), "create")
        _space = torch.empty(SPACE, dtype=torch.uint8, device="cuda")
    return _lib


def ok(code, what):
    if code:
        raise RuntimeError(f"cublasLt {what}: {code}")


def _set(function, object_, key, value):
    ok(function(object_, ctypes.c_int(key), ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))), f"set {key}")


class Matmul:
    """a: stored [m,k], or [k,m] if ta. b: stored [k,n], or [n,k] if tb. In cuBLAS' column-major
    layout, C^T = op(B)^T op(A)^T."""

    def __init__(self, m, n, k, ta, tb, out=BF16, sms=0, split=True):
        lib = library()
        self.one, self.zero = ctypes.c_float(1), ctypes.c_float(0)
        self.desc = P()
        ok(lib.cublasLtMatmulDescCreate(ctypes.byref(self.desc), 68, F32), "desc")
        _set(lib.cublasLtMatmulDescSetAttribute, self.desc, 3, ctypes.c_int32(1 if tb else 0))
        _set(lib.cublasLtMatmulDescSetAttribute, self.desc, 4, ctypes.c_int32(1 if ta else 0))
        if sms:
            _set(lib.cublasLtMatmulDescSetAttribute, self.desc, 15, ctypes.c_int32(sms))
        self.lb = self._layout(BF16, *((k, n) if tb else (n, k)))
        self.la = self._layout(BF16, *((m, k) if ta else (k, m)))
        self.lc = self._layout(out, n, m)
        preference = P()
        ok(lib.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)), "preference")
        _set(lib.cublasLtMatmulPreferenceSetAttribute, preference, 1, ctypes.c_uint64(SPACE))
        if not split:
            _set(lib.cublasLtMatmulPreferenceSetAttribute, preference, 3, ctypes.c_uint32(0))
        self.results = (Result * 32)()
        count = ctypes.c_int()
        ok(lib.cublasLtMatmulAlgoGetHeuristic(_handle, self.desc, self.lb, self.la, self.lc, self.lc, preference, 32, self.results,
                                              ctypes.byref(count)), "heuristic")
        lib.cublasLtMatmulPreferenceDestroy(preference)
        self.count = count.value

    def _layout(self, kind, rows, columns):
        layout = P()
        ok(library().cublasLtMatrixLayoutCreate(ctypes.byref(layout), kind, ctypes.c_uint64(rows), ctypes.c_uint64(columns),
                                                ctypes.c_int64(rows)), "layout")
        return layout

    def run(self, index, a, b, c):
        r = self.results[index]
        ok(library().cublasLtMatmul(_handle, self.desc, ctypes.byref(self.one), P(b.data_ptr()), self.lb, P(a.data_ptr()), self.la,
                                    ctypes.byref(self.zero), P(c.data_ptr()), self.lc, P(c.data_ptr()), self.lc,
                                    ctypes.byref(r.algo), P(_space.data_ptr()), ctypes.c_size_t(SPACE), stream()), "matmul")

    def facts(self, index):
        """id, tile, split-K, reduction, stages, cluster"""
        values = []
        for key, kind in ((0, ctypes.c_int32), (1, ctypes.c_uint32), (2, ctypes.c_int32), (3, ctypes.c_uint32), (6, ctypes.c_uint32),
                          (8, ctypes.c_uint16)):
            value, size = kind(), ctypes.c_size_t()
            code = library().cublasLtMatmulAlgoConfigGetAttribute(ctypes.byref(self.results[index].algo), ctypes.c_int(key),
                                                                  ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)),
                                                                  ctypes.byref(size))
            values.append(value.value if code == 0 else "?")
        return "id {} tile {} split {} red {} stages {} cluster {}".format(*values)
