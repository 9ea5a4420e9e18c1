// -DD=2048: width. RMSNorm backward in ATen's order.
typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
struct alignas(8) V4 { u32 w[2]; };
__device__ __forceinline__ float lo(u32 v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float hi(u32 v) { return __uint_as_float(v & 0xffff0000u); }
__device__ __forceinline__ u32 pack(float a, float b) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a)); return r; }
__device__ __forceinline__ float at(const V4& v, int k) { return k & 1 ? hi(v.w[k >> 1]) : lo(v.w[k >> 1]); }
__device__ __forceinline__ u16 down(float a) { u16 r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(a)); return r; }
constexpr int VECTORS = D / 4, STEPS = (VECTORS + 127) / 128;

// dy = g1 + g2 (bf16); dx of the norm (bf16); out = dres + dx (bf16). 128 threads per row.
extern "C" __global__ void __launch_bounds__(128) norm_dx(const V4* __restrict__ g1, const V4* __restrict__ g2, const V4* __restrict__ x,
    const float* __restrict__ rstd, const V4* __restrict__ w, const V4* __restrict__ dres, V4* __restrict__ dy, V4* __restrict__ out) {
  __shared__ float buf[4];
  long row = (long)blockIdx.x * VECTORS;
  float rs = rstd[blockIdx.x], acc = 0.f;
  V4 vg[STEPS], vx[STEPS], vw[STEPS], vr[STEPS];
#pragma unroll
  for (int i = 0; i < STEPS; ++i) { int j = i * 128 + threadIdx.x;
    if (VECTORS % 128 == 0 || j < VECTORS) {
      V4 a = g1[row + j], b = g2[row + j]; vx[i] = x[row + j]; vr[i] = dres[row + j]; vw[i] = w[j];
#pragma unroll
      for (int k = 0; k < 2; ++k)
        vg[i].w[k] = pack(__fadd_rn(lo(a.w[k]), lo(b.w[k])), __fadd_rn(hi(a.w[k]), hi(b.w[k])));
      dy[row + j] = vg[i]; } }
#pragma unroll
  for (int i = 0; i < STEPS; ++i) { int j = i * 128 + threadIdx.x;
    if (VECTORS % 128 == 0 || j < VECTORS) {
#pragma unroll
      for (int k = 0; k < 4; ++k) acc = __fmaf_rn(rs, __fmul_rn(__fmul_rn(at(vg[i], k), at(vw[i], k)), at(vx[i], k)), acc); } }
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) acc = __fadd_rn(acc, __shfl_down_sync(0xffffffffu, acc, o));
  if ((threadIdx.x & 31) == 0) buf[threadIdx.x >> 5] = acc;
  __syncthreads();
  float s = __fadd_rn(__fadd_rn(buf[0], buf[2]), __fadd_rn(buf[1], buf[3]));
  float term = __fmul_rn(__fdiv_rn(1.f, (float)D), rs);
#pragma unroll
  for (int i = 0; i < STEPS; ++i) { int j = i * 128 + threadIdx.x;
    if (VECTORS % 128 == 0 || j < VECTORS) {
      float r[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        float f = __fmaf_rn(at(vg[i], k), __fmul_rn((float)D, at(vw[i], k)), -__fmul_rn(s, __fmul_rn(rs, at(vx[i], k))));
        r[k] = __fmul_rn(f, term); }
      V4 d, o;
#pragma unroll
      for (int k = 0; k < 2; ++k) { d.w[k] = pack(r[2 * k], r[2 * k + 1]);
        o.w[k] = pack(__fadd_rn(lo(vr[i].w[k]), lo(d.w[k])), __fadd_rn(hi(vr[i].w[k]), hi(d.w[k]))); }
      out[row + j] = o; } } }

// The same, but only dx from an existing dy, to compare with the op itself.
extern "C" __global__ void __launch_bounds__(128) norm_dx_alone(const V4* __restrict__ g, const V4* __restrict__ x,
    const float* __restrict__ rstd, const V4* __restrict__ w, V4* __restrict__ out) {
  __shared__ float buf[4];
  long row = (long)blockIdx.x * VECTORS;
  float rs = rstd[blockIdx.x], acc = 0.f;
  V4 vg[STEPS], vx[STEPS], vw[STEPS];
#pragma unroll
  for (int i = 0; i < STEPS; ++i) { int j = i * 128 + threadIdx.x;
    if (VECTORS % 128 == 0 || j < VECTORS) { vg[i] = g[row + j]; vx[i] = x[row + j]; vw[i] = w[j]; } }
#pragma unroll
  for (int i = 0; i < STEPS; ++i) { int j = i * 128 + threadIdx.x;
    if (VECTORS % 128 == 0 || j < VECTORS) {
#pragma unroll
      for (int k = 0; k < 4; ++k) acc = __fmaf_rn(rs, __fmul_rn(__fmul_rn(at(vg[i], k), at(vw[i], k)), at(vx[i], k)), acc); } }
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) acc = __fadd_rn(acc, __shfl_down_sync(0xffffffffu, acc, o));
  if ((threadIdx.x & 31) == 0) buf[threadIdx.x >> 5] = acc;
  __syncthreads();
  float s = __fadd_rn(__fadd_rn(buf[0], buf[2]), __fadd_rn(buf[1], buf[3]));
  float term = __fmul_rn(__fdiv_rn(1.f, (float)D), rs);
#pragma unroll
  for (int i = 0; i < STEPS; ++i) { int j = i * 128 + threadIdx.x;
    if (VECTORS % 128 == 0 || j < VECTORS) {
      float r[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        float f = __fmaf_rn(at(vg[i], k), __fmul_rn((float)D, at(vw[i], k)), -__fmul_rn(s, __fmul_rn(rs, at(vx[i], k))));
        r[k] = __fmul_rn(f, term); }
      V4 d;
#pragma unroll
      for (int k = 0; k < 2; ++k) d.w[k] = pack(r[2 * k], r[2 * k + 1]);
      out[row + j] = d; } } }

// dgamma: 32 chains per column; chain y adds rows 256 k + 8 y + i. A warp: 64 columns of one chain.
// Grid (D/64, 8), 4 warps. parts[32][D]. AHEAD groups of 8 rows are loaded before they are added.
#ifndef AHEAD
#define AHEAD 4
#endif
extern "C" __global__ void __launch_bounds__(128) gamma_parts(const u32* __restrict__ dy, const u32* __restrict__ x,
    const float* __restrict__ rstd, float* __restrict__ parts, int rows) {
  int chain = blockIdx.y * 4 + (threadIdx.x >> 5), column = blockIdx.x * 32 + (threadIdx.x & 31);
  float a = 0.f, b = 0.f;
  int groups = rows / 256;
  for (int k = 0; k < groups; k += AHEAD) {
    u32 g[AHEAD][8], v[AHEAD][8]; float rs[AHEAD][8];
#pragma unroll
    for (int h = 0; h < AHEAD; ++h) { if (k + h < groups) {
      long row = (long)(k + h) * 256 + chain * 8;
      const float4* r = (const float4*)(rstd + row);
      *(float4*)&rs[h][0] = r[0]; *(float4*)&rs[h][4] = r[1];
#pragma unroll
      for (int i = 0; i < 8; ++i) { g[h][i] = dy[(row + i) * (D / 2) + column]; v[h][i] = x[(row + i) * (D / 2) + column]; } } }
#pragma unroll
    for (int h = 0; h < AHEAD; ++h) { if (k + h < groups) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        a = __fmaf_rn(rs[h][i], __fmul_rn(lo(g[h][i]), lo(v[h][i])), a);
        b = __fmaf_rn(rs[h][i], __fmul_rn(hi(g[h][i]), hi(v[h][i])), b); } } } }
  ((float2*)parts)[chain * (D / 2) + column] = make_float2(a, b); }
// Butterfly over the 32 chains of a column, one warp per column.
extern "C" __global__ void __launch_bounds__(256) gamma_sum(const float* __restrict__ parts, u16* __restrict__ dw) {
  __shared__ float tile[32][33];
  int c0 = blockIdx.x * 32;
  for (int y = threadIdx.x >> 5; y < 32; y += 8) tile[y][threadIdx.x & 31] = parts[y * D + c0 + (threadIdx.x & 31)];
  __syncthreads();
  for (int c = threadIdx.x >> 5; c < 32; c += 8) {
    float v = tile[threadIdx.x & 31][c];
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v = __fadd_rn(v, __shfl_xor_sync(0xffffffffu, v, o));
    if ((threadIdx.x & 31) == 0) dw[c0 + c] = down(v); } }

// Residual add + RMSNorm forward, for any width.
extern "C" __global__ void __launch_bounds__(128) add_norm(const V4* __restrict__ x, const V4* __restrict__ r, const V4* __restrict__ w,
    V4* __restrict__ s, V4* __restrict__ y, float* __restrict__ rstd, float eps) {
  __shared__ float buf[4];
  V4 v[STEPS]; float acc = 0.f; long row = (long)blockIdx.x * VECTORS;
#pragma unroll
  for (int i = 0; i < STEPS; ++i) { int j = i * 128 + threadIdx.x;
    if (VECTORS % 128 == 0 || j < VECTORS) {
      V4 p = x[row + j], q = r[row + j];
#pragma unroll
      for (int k = 0; k < 2; ++k) v[i].w[k] = pack(__fadd_rn(lo(p.w[k]), lo(q.w[k])), __fadd_rn(hi(p.w[k]), hi(q.w[k])));
      s[row + j] = v[i];
#pragma unroll
      for (int k = 0; k < 4; ++k) acc = __fmaf_rn(at(v[i], k), at(v[i], k), acc); } }
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) acc = __fadd_rn(acc, __shfl_down_sync(0xffffffffu, acc, o));
  if ((threadIdx.x & 31) == 0) buf[threadIdx.x >> 5] = acc;
  __syncthreads();
  float rs = rsqrtf(__fadd_rn(__fdiv_rn(__fadd_rn(__fadd_rn(buf[0], buf[2]), __fadd_rn(buf[1], buf[3])), (float)D), eps));
  if (threadIdx.x == 0) rstd[blockIdx.x] = rs;
#pragma unroll
  for (int i = 0; i < STEPS; ++i) { int j = i * 128 + threadIdx.x;
    if (VECTORS % 128 == 0 || j < VECTORS) {
      V4 g = w[j], o;
#pragma unroll
      for (int k = 0; k < 2; ++k)
        o.w[k] = pack(__fmul_rn(lo(g.w[k]), __fmul_rn(rs, lo(v[i].w[k]))), __fmul_rn(hi(g.w[k]), __fmul_rn(rs, hi(v[i].w[k]))));
      y[row + j] = o; } } }
