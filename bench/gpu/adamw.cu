// AdamW over a table of tensors: bf16 (IN16=1) or f32 gradients, scaled by the clip coefficient,
// f32 state, bf16 copy of the new weight.
typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
__device__ __forceinline__ float lo(u32 v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float hi(u32 v) { return __uint_as_float(v & 0xffff0000u); }
__device__ __forceinline__ u32 pack(float a, float b) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a)); return r; }
struct Entry { float* p; void* g; float* m; float* v; u16* w; u64 count; };
struct Place { int tensor; int part; };
#ifndef IN16
#define IN16 1
#endif
#ifndef UNROLL
#define UNROLL 4
#endif
__device__ __forceinline__ float4 load(const void* g, u64 i) {
  if (IN16) { uint2 r = __ldcs((const uint2*)g + i); return make_float4(lo(r.x), hi(r.x), lo(r.y), hi(r.y)); }
  return __ldcs((const float4*)g + i); }
__device__ __forceinline__ void one(float& p, float g, float& m, float& v, float lrwd, float b1, float b2, float step, float bc2, float eps) {
  p = __fmaf_rn(-lrwd, p, p);
  m = __fmaf_rn(b1, m, __fmaf_rn(-b1, g, g));
  float gg = __fmul_rn(g, g);
  v = __fmaf_rn(b2, v, __fmaf_rn(-b2, gg, gg));
  float denom = __fadd_rn(__fdiv_rn(__fsqrt_rn(v), bc2), eps);
  p = __fsub_rn(p, __fdiv_rn(__fmul_rn(step, m), denom)); }
extern "C" __global__ void __launch_bounds__(256) update(const Entry* __restrict__ table, const Place* __restrict__ places,
    const float* __restrict__ lr_, const float* __restrict__ steps, const float* __restrict__ coef_, float b1, float b2, float wd, float eps) {
  __shared__ float shared[2];
  Place place = places[blockIdx.x]; Entry e = table[place.tensor];
  if (threadIdx.x == 0) { float n = *steps; shared[0] = __fadd_rn(1.f, -powf(b1, n)); shared[1] = __fsqrt_rn(__fadd_rn(1.f, -powf(b2, n))); }
  float lr = *lr_, coef = *coef_, lrwd = __fmul_rn(lr, wd);
  u64 base = (u64)place.part * (256 * UNROLL) + threadIdx.x, count = e.count / 4;
  float4 p[UNROLL], g[UNROLL], m[UNROLL], v[UNROLL];
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) { u64 i = base + k * 256; if (i < count) {
    p[k] = __ldcs((float4*)e.p + i); g[k] = load(e.g, i); m[k] = __ldcs((float4*)e.m + i); v[k] = __ldcs((float4*)e.v + i); } }
  __syncthreads();
  float step = __fdiv_rn(lr, shared[0]), bc2 = shared[1];
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) { u64 i = base + k * 256; if (i < count) {
    one(p[k].x, __fmul_rn(g[k].x, coef), m[k].x, v[k].x, lrwd, b1, b2, step, bc2, eps);
    one(p[k].y, __fmul_rn(g[k].y, coef), m[k].y, v[k].y, lrwd, b1, b2, step, bc2, eps);
    one(p[k].z, __fmul_rn(g[k].z, coef), m[k].z, v[k].z, lrwd, b1, b2, step, bc2, eps);
    one(p[k].w, __fmul_rn(g[k].w, coef), m[k].w, v[k].w, lrwd, b1, b2, step, bc2, eps);
    __stcs((float4*)e.p + i, p[k]); __stcs((float4*)e.m + i, m[k]); __stcs((float4*)e.v + i, v[k]);
    uint2 w; w.x = pack(p[k].x, p[k].y); w.y = pack(p[k].z, p[k].w); __stcs((uint2*)e.w + i, w); } } }

__device__ __forceinline__ float block512(float v, float* buf) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v = __fadd_rn(v, __shfl_down_sync(0xffffffffu, v, o));
  __syncthreads();
  if ((threadIdx.x & 31) == 0) buf[threadIdx.x >> 5] = v;
  __syncthreads();
  v = threadIdx.x < 16 ? buf[threadIdx.x] : 0.f;
  if (threadIdx.x < 32) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v = __fadd_rn(v, __shfl_down_sync(0xffffffffu, v, o)); }
  return v; }
// _foreach_norm: 512 threads process a chunk of 65,536 elements, with 4 sums per thread.
extern "C" __global__ void __launch_bounds__(512) norm_parts(const Entry* __restrict__ table, const Place* __restrict__ places, float* __restrict__ parts, int most) {
  __shared__ float buf[16];
  Place place = places[blockIdx.x]; Entry e = table[place.tensor];
  u64 first = (u64)place.part * 16384, end = e.count / 4; if (end > first + 16384) end = first + 16384;
  float a[4] = {0.f, 0.f, 0.f, 0.f};
  float4 next[8];
  for (u64 i = first + threadIdx.x; i < end; i += 512 * 8) {
#pragma unroll
    for (int k = 0; k < 8; ++k) if (i + k * 512 < end) next[k] = load(e.g, i + k * 512);
#pragma unroll
    for (int k = 0; k < 8; ++k) if (i + k * 512 < end) {
      a[0] = __fmaf_rn(next[k].x, next[k].x, a[0]); a[1] = __fmaf_rn(next[k].y, next[k].y, a[1]);
      a[2] = __fmaf_rn(next[k].z, next[k].z, a[2]); a[3] = __fmaf_rn(next[k].w, next[k].w, a[3]); } }
  float v = block512(__fadd_rn(__fadd_rn(__fadd_rn(__fadd_rn(0.f, a[0]), a[1]), a[2]), a[3]), buf);
  if (threadIdx.x == 0) parts[(long)place.tensor * most + place.part] = v; }
extern "C" __global__ void __launch_bounds__(512) norm_sums(const float* __restrict__ parts, float* __restrict__ norms, int most) {
  __shared__ float buf[16];
  float v = 0.f;
  for (int i = threadIdx.x; i < most; i += 512) v = __fadd_rn(v, parts[(long)blockIdx.x * most + i]);
  v = block512(v, buf);
  if (threadIdx.x == 0) norms[blockIdx.x] = __fsqrt_rn(v); }
