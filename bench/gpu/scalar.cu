typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
__device__ __forceinline__ float up(u16 v) { return __uint_as_float((u32)v << 16); }
__device__ __forceinline__ u16 down(float a) { u16 r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(a)); return r; }
__device__ __forceinline__ bool nan32(u32 v) { return (v & 0x7fffffffu) > 0x7f800000u; }
__device__ __forceinline__ bool nan16(u16 v) { return (v & 0x7fffu) > 0x7f80u; }
// count[0]: elements that differ, unless both are NaN; count[1]: NaNs with different bits;
// count[2]: elements compared; example: index of an element that differs.
__device__ __forceinline__ void judge(u32 mine, u32 theirs, bool both_nan, u64 i, u64* count, u64* example) {
  if (mine != theirs) { if (both_nan) atomicAdd(count + 1, 1ull); else { atomicAdd(count, 1ull); *example = i; } }
}
__device__ __forceinline__ void seen(u64 n, u64* count) {  // a kernel that does nothing must not look like one that agrees
  if (threadIdx.x == 0) { u64 first = (u64)blockIdx.x * blockDim.x, more = n - first; atomicAdd(count + 2, more < blockDim.x ? more : blockDim.x); } }
// Each op in f32, with every operation rounded separately, as ATen's op does.
__device__ __forceinline__ float f_exp(float x) { return expf(x); }
__device__ __forceinline__ float f_log(float x) { return logf(x); }
__device__ __forceinline__ float f_sqrt(float x) { return __fsqrt_rn(x); }
__device__ __forceinline__ float f_rsqrt(float x) { return rsqrtf(x); }
__device__ __forceinline__ float f_sigmoid(float x) { return __fdiv_rn(1.f, __fadd_rn(1.f, expf(-x))); }
__device__ __forceinline__ float f_silu(float x) { return __fdiv_rn(x, __fadd_rn(1.f, expf(-x))); }
__device__ __forceinline__ float f_neg(float x) { return -x; }
__device__ __forceinline__ float f_reciprocal(float x) { return __fdiv_rn(1.f, x); }
__device__ __forceinline__ float f_tanh(float x) { return tanhf(x); }
__device__ __forceinline__ float f_add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ float f_sub(float a, float b) { return __fsub_rn(a, b); }
__device__ __forceinline__ float f_mul(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float f_div(float a, float b) { return __fdiv_rn(a, b); }
__device__ __forceinline__ float f_silu_backward(float g, float x) {
  float s = __fdiv_rn(1.f, __fadd_rn(1.f, expf(-x)));
  return __fmul_rn(__fmul_rn(g, s), __fmaf_rn(x, __fadd_rn(1.f, -s), 1.f)); }
#define UNARY(F) \
extern "C" __global__ void u32_##F(const float* x, const u32* ref, u64 n, u64* count, u64* example) { \
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; seen(n, count); \
  u32 r = __float_as_uint(f_##F(x[i])); judge(r, ref[i], nan32(r) && nan32(ref[i]), i, count, example); } \
extern "C" __global__ void u16_##F(const u16* x, const u16* ref, u64 n, u64* count, u64* example) { \
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; seen(n, count); \
  u16 r = down(f_##F(up(x[i]))); judge(r, ref[i], nan16(r) && nan16(ref[i]), i, count, example); }
#define BINARY(F) \
extern "C" __global__ void b32_##F(const float* x, const float* y, const u32* ref, u64 n, u64* count, u64* example) { \
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; seen(n, count); \
  u32 r = __float_as_uint(f_##F(x[i], y[i])); judge(r, ref[i], nan32(r) && nan32(ref[i]), i, count, example); } \
extern "C" __global__ void b16_##F(const u16* x, const u16* y, const u16* ref, u64 n, u64* count, u64* example) { \
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; seen(n, count); \
  u16 r = down(f_##F(up(x[i]), up(y[i]))); judge(r, ref[i], nan16(r) && nan16(ref[i]), i, count, example); }
UNARY(exp) UNARY(log) UNARY(sqrt) UNARY(rsqrt) UNARY(sigmoid) UNARY(silu) UNARY(neg) UNARY(reciprocal) UNARY(tanh)
BINARY(add) BINARY(sub) BINARY(mul) BINARY(div) BINARY(silu_backward)
extern "C" __global__ void to_bf16(const float* x, const u16* ref, u64 n, u64* count, u64* example) {
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; seen(n, count);
  u16 r = down(x[i]); judge(r, ref[i], nan16(r) && nan16(ref[i]), i, count, example); }
extern "C" __global__ void to_f32(const u16* x, const u32* ref, u64 n, u64* count, u64* example) {
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; seen(n, count);
  u32 r = __float_as_uint(up(x[i])); judge(r, ref[i], nan32(r) && nan32(ref[i]), i, count, example); }
// (a+bi)(c+di): re = fma(a, c, -(b*d)), im = fma(b, c, a*d)
extern "C" __global__ void c_mul(const float2* x, const float2* y, const u32* ref, u64 n, u64* count, u64* example) {
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; seen(n, count);
  float a = x[i].x, b = x[i].y, c = y[i].x, d = y[i].y;
  u32 re = __float_as_uint(__fmaf_rn(a, c, -__fmul_rn(b, d))), im = __float_as_uint(__fmaf_rn(b, c, __fmul_rn(a, d)));
  judge(re, ref[2 * i], nan32(re) && nan32(ref[2 * i]), i, count, example);
  judge(im, ref[2 * i + 1], nan32(im) && nan32(ref[2 * i + 1]), i, count, example); }
// The same with the other order of im: fma(a, d, b*c).
extern "C" __global__ void c_mul_other(const float2* x, const float2* y, const u32* ref, u64 n, u64* count, u64* example) {
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; seen(n, count);
  float a = x[i].x, b = x[i].y, c = y[i].x, d = y[i].y;
  u32 re = __float_as_uint(__fmaf_rn(a, c, -__fmul_rn(b, d))), im = __float_as_uint(__fmaf_rn(a, d, __fmul_rn(b, c)));
  judge(re, ref[2 * i], nan32(re) && nan32(ref[2 * i]), i, count, example);
  judge(im, ref[2 * i + 1], nan32(im) && nan32(ref[2 * i + 1]), i, count, example); }
