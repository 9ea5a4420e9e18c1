// Pointwise groups, 8 elements per thread and load: SwiGLU forward and backward, RoPE of [.., T, H,
// 64].
typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
struct alignas(16) V8 { u32 w[4]; };
__device__ __forceinline__ float lo(u32 v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float hi(u32 v) { return __uint_as_float(v & 0xffff0000u); }
__device__ __forceinline__ u32 pack(float a, float b) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a)); return r; }
__device__ __forceinline__ float rb(float a) { u16 r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(a)); return __uint_as_float((u32)r << 16); }
__device__ __forceinline__ float silu(float x) { return __fdiv_rn(x, __fadd_rn(1.f, expf(-x))); }
#ifndef EACH
#define EACH 1
#endif
#define LOOP for (int e = 0; e < EACH; ++e) { long i = ((long)blockIdx.x * EACH + e) * 256 + threadIdx.x; if (i < n)
extern "C" __global__ void __launch_bounds__(256) swiglu(const V8* __restrict__ a, const V8* __restrict__ b, V8* __restrict__ h, long n) {
#pragma unroll
  LOOP { V8 x = a[i], y = b[i], o;
#pragma unroll
    for (int k = 0; k < 4; ++k)
      o.w[k] = pack(__fmul_rn(rb(silu(lo(x.w[k]))), lo(y.w[k])), __fmul_rn(rb(silu(hi(x.w[k]))), hi(y.w[k])));
    h[i] = o; } } }
__device__ __forceinline__ void back(float g, float x, float y, float& da, float& db) {
  float e = expf(-x), d = __fadd_rn(1.f, e);
  db = __fmul_rn(g, rb(__fdiv_rn(x, d)));
  float s = __fdiv_rn(1.f, d), ds = rb(__fmul_rn(g, y));
  da = __fmul_rn(__fmul_rn(ds, s), __fmaf_rn(x, __fadd_rn(1.f, -s), 1.f)); }
extern "C" __global__ void __launch_bounds__(256) swiglu_back(const V8* __restrict__ dh, const V8* __restrict__ a, const V8* __restrict__ b,
    V8* __restrict__ da, V8* __restrict__ db, long n) {
#pragma unroll
  LOOP { V8 g = dh[i], x = a[i], y = b[i], oa, ob;
#pragma unroll
    for (int k = 0; k < 4; ++k) { float a0, a1, b0, b1;
      back(lo(g.w[k]), lo(x.w[k]), lo(y.w[k]), a0, b0); back(hi(g.w[k]), hi(x.w[k]), hi(y.w[k]), a1, b1);
      oa.w[k] = pack(a0, a1); ob.w[k] = pack(b0, b1); }
    da[i] = oa; db[i] = ob; } } }
// sign -1: multiplies by the conjugate. 8 elements are 4 pairs; a row of a head has 8 vectors.
extern "C" __global__ void __launch_bounds__(256) rope(const V8* __restrict__ x, const float4* __restrict__ r, V8* __restrict__ y, long n, int heads, int length, float sign) {
#pragma unroll
  LOOP { V8 v = x[i], o; int t = (int)(i / (8 * heads) % length); const float4* c = r + (t * 8 + (i & 7)) * 2;
#pragma unroll
    for (int k = 0; k < 2; ++k) { float4 q = c[k];
      float a = lo(v.w[2 * k]), b = hi(v.w[2 * k]), d = sign * q.y;
      o.w[2 * k] = pack(__fmaf_rn(a, q.x, -__fmul_rn(b, d)), __fmaf_rn(a, d, __fmul_rn(b, q.x)));
      a = lo(v.w[2 * k + 1]); b = hi(v.w[2 * k + 1]); d = sign * q.w;
      o.w[2 * k + 1] = pack(__fmaf_rn(a, q.z, -__fmul_rn(b, d)), __fmaf_rn(a, d, __fmul_rn(b, q.z))); }
    y[i] = o; } } }
