// -DV=32000 -DC=1: cross entropy of a row, forward and backward, in place over its bf16 logits, in
// the order of ATen's _log_softmax. (1,024 chains; chain t adds vectors of 4 number t + 1024 k,
// then the rest with stride 1,024; then a tree per warp, and a tree over the 32 warps.)
typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
struct alignas(8) V4 { u32 w[2]; };
__device__ __forceinline__ float lo(u32 v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float hi(u32 v) { return __uint_as_float(v & 0xffff0000u); }
__device__ __forceinline__ float up(u16 v) { return __uint_as_float((u32)v << 16); }
__device__ __forceinline__ u32 pack(float a, float b) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a)); return r; }
__device__ __forceinline__ u16 down(float a) { u16 r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(a)); return r; }
__device__ __forceinline__ float max_nan(float a, float b) { return a != a ? a : (b != b ? b : (a > b ? a : b)); }
constexpr int T = 1024 / C;                  // threads of a block; C blocks share a row
constexpr int FULL = V / 4096, REST = V % 4096;

__device__ __forceinline__ u32 rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ __forceinline__ void meet() {
  if (C == 1) { __syncthreads(); return; }
  asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ __forceinline__ void put(float* where, int block, float value) {  // into another block's shared memory
  if (C == 1) { *where = value; return; }
  u32 a = (u32)__cvta_generic_to_shared(where), b;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(b) : "r"(a), "r"(block));
  asm volatile("st.shared::cluster.f32 [%0], %1;" :: "r"(b), "f"(value) : "memory"); }

template <bool MAX> __device__ __forceinline__ float merge(float a, float b) { return MAX ? max_nan(a, b) : __fadd_rn(a, b); }
// Reduces over the 1,024 chains; every thread gets the result.
template <bool MAX> __device__ __forceinline__ float all(float v, float* sums, int chain) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v = merge<MAX>(v, __shfl_down_sync(0xffffffffu, v, o));
  if ((threadIdx.x & 31) == 0) {
#pragma unroll
    for (int b = 0; b < C; ++b) put(sums + chain / 32, b, v); }
  meet();
  v = sums[threadIdx.x & 31];
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v = merge<MAX>(v, __shfl_down_sync(0xffffffffu, v, o));
  return __shfl_sync(0xffffffffu, v, 0); }

__device__ __forceinline__ float probability(float x, float m, float l) { return expf(__fadd_rn(__fadd_rn(x, -m), -l)); }
__device__ __forceinline__ float gradient(float p, float g, bool hit) { return __fmaf_rn(g, p, hit ? -g : 0.f); }

// KEEP: the row stays in shared memory; otherwise it is read again from L2. g = gradient of one
// token's loss.
#ifndef KEEP
#define KEEP 0
#endif
#ifndef REVERSE
#define REVERSE 0
#endif
extern "C" __global__ void
#if C > 1
__cluster_dims__(C, 1, 1)
#endif
__launch_bounds__(T) loss(u16* __restrict__ logits, const long long* __restrict__ labels, float* __restrict__ losses, const float* __restrict__ scale, int ignore) {
  extern __shared__ V4 row[];                // FULL * T vectors, then the rest
  __shared__ float sums[2][32];
  int chain = (C > 1 ? rank() * T : 0) + threadIdx.x;
  long line = blockIdx.x / C; if (REVERSE) line = gridDim.x / C - 1 - line;
  u16* mine = logits + line * (long)V;
  V4* vectors = (V4*)mine;
  u16* tail = (u16*)(row + FULL * T);
  if (C > 1) meet();                         // all blocks of the cluster run
  float m = -__int_as_float(0x7f800000);
#if KEEP
#pragma unroll 4
  for (int k = 0; k < FULL; ++k) {
    u32 to = (u32)__cvta_generic_to_shared(row + k * T + threadIdx.x);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" :: "r"(to), "l"(vectors + k * 1024 + chain) : "memory"); }
  asm volatile("cp.async.commit_group;\n cp.async.wait_group 0;" ::: "memory");  // each thread reads only what it copied
#endif
  if (REST) for (int j = 0; j < (REST + 1023) / 1024; ++j) { int e = FULL * 4096 + j * 1024 + chain;
    if (e < V) { u16 x = mine[e]; if (KEEP) tail[j * T + threadIdx.x] = x; m = max_nan(m, up(x)); } }
#pragma unroll 8
  for (int k = 0; k < FULL; ++k) { V4 v = KEEP ? row[k * T + threadIdx.x] : vectors[k * 1024 + chain];
    m = max_nan(max_nan(max_nan(max_nan(m, lo(v.w[0])), hi(v.w[0])), lo(v.w[1])), hi(v.w[1])); }
  m = all<true>(m, sums[0], chain);
  float s = 0.f;
#pragma unroll 8
  for (int k = 0; k < FULL; ++k) { V4 v = KEEP ? row[k * T + threadIdx.x] : vectors[k * 1024 + chain];
    s = __fadd_rn(s, expf(__fadd_rn(lo(v.w[0]), -m))); s = __fadd_rn(s, expf(__fadd_rn(hi(v.w[0]), -m)));
    s = __fadd_rn(s, expf(__fadd_rn(lo(v.w[1]), -m))); s = __fadd_rn(s, expf(__fadd_rn(hi(v.w[1]), -m))); }
  if (REST) for (int j = 0; j < (REST + 1023) / 1024; ++j) { int e = FULL * 4096 + j * 1024 + chain;
    if (e < V) s = __fadd_rn(s, expf(__fadd_rn(up(KEEP ? tail[j * T + threadIdx.x] : mine[e]), -m))); }
  s = all<false>(s, sums[1], chain);
  float l = logf(s);
  int label = (int)labels[line];
  float g = label == ignore ? 0.f : *scale;
  if (label != ignore && label / 4 % 1024 == chain && label < FULL * 4096) {
    losses[line] = -__fadd_rn(__fadd_rn(up(mine[label]), -m), -l);
  } else if (label != ignore && label >= FULL * 4096 && (label - FULL * 4096) % 1024 == chain) {
    losses[line] = -__fadd_rn(__fadd_rn(up(mine[label]), -m), -l);
  } else if (label == ignore && chain == 0) losses[line] = 0.f;
#pragma unroll 8
  for (int k = 0; k < FULL; ++k) { V4 v = KEEP ? row[k * T + threadIdx.x] : vectors[k * 1024 + chain]; int e = (k * 1024 + chain) * 4;
    v.w[0] = pack(gradient(probability(lo(v.w[0]), m, l), g, e == label), gradient(probability(hi(v.w[0]), m, l), g, e + 1 == label));
    v.w[1] = pack(gradient(probability(lo(v.w[1]), m, l), g, e + 2 == label), gradient(probability(hi(v.w[1]), m, l), g, e + 3 == label));
    vectors[k * 1024 + chain] = v; }
  if (REST) for (int j = 0; j < (REST + 1023) / 1024; ++j) { int e = FULL * 4096 + j * 1024 + chain;
    if (e < V) mine[e] = down(gradient(probability(up(KEEP ? tail[j * T + threadIdx.x] : mine[e]), m, l), g, e == label)); } }
