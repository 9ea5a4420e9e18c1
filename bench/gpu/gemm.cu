// C[M,N] = A[M,K] B[N,K]^T in bf16, with f32 accumulation in the order of k. Blocks of 128 x 256,
// in clusters of 2 along M that share B by multicast; one producer warpgroup (TMA), two consumer
// warpgroups (wgmma m64n256k16). The generator defines WGMMA.
//
// EPI 0: writes C. EPI 1: B is 128 rows of W1 and the same 128 rows of W3. Writes a, b (bf16) and h
// = silu(a) * b, each op rounded as in ATen.
typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
struct alignas(64) Map { u64 x[16]; };
constexpr int BM = 128, BN = 256, BK = 64, STAGES = 4, A_BYTES = BM * BK * 2, B_BYTES = BN * BK * 2, STAGE = A_BYTES + B_BYTES;
__device__ __forceinline__ u32 sh(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void init(u64* b, int n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(sh(b)), "r"(n)); }
__device__ __forceinline__ void expect(u64* b, u32 n) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(sh(b)), "r"(n) : "memory"); }
__device__ __forceinline__ void wait(u64* b, u32 parity) {
  asm volatile("{\n .reg .pred p;\n W: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%0], %1;\n @p bra D;\n bra W;\n D:\n }" :: "r"(sh(b)), "r"(parity) : "memory"); }
__device__ __forceinline__ void wait_cluster(u64* b, u32 parity) {
  asm volatile("{\n .reg .pred p;\n W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n @p bra D;\n bra W;\n D:\n }" :: "r"(sh(b)), "r"(parity) : "memory"); }
__device__ __forceinline__ void arrive(u64* b, u32 block) {
  asm volatile("{\n .reg .b32 a;\n mapa.shared::cluster.u32 a, %0, %1;\n mbarrier.arrive.release.cluster.shared::cluster.b64 _, [a];\n }" :: "r"(sh(b)), "r"(block) : "memory"); }
__device__ __forceinline__ void load(void* to, const Map* map, u64* bar, int k, int row) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
    :: "r"(sh(to)), "l"(map), "r"(sh(bar)), "r"(k), "r"(row) : "memory"); }
__device__ __forceinline__ void load_both(void* to, const Map* map, u64* bar, int k, int row) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;"
    :: "r"(sh(to)), "l"(map), "r"(sh(bar)), "r"(k), "r"(row), "h"((u16)3) : "memory"); }
__device__ __forceinline__ u64 describe(const void* p) {  // K-major, 128-byte swizzle: 8 rows are 1,024 bytes apart
  return (u64)((sh(p) & 0x3ffff) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62); }
__device__ __forceinline__ void cluster_meet() { asm volatile("barrier.cluster.arrive.release;\n barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ __forceinline__ u32 pack(float a, float b) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a)); return r; }
__device__ __forceinline__ float lo(u32 v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float hi(u32 v) { return __uint_as_float(v & 0xffff0000u); }
__device__ __forceinline__ float silu(float x) { return __fdiv_rn(x, __fadd_rn(1.f, expf(-x))); }
__device__ __forceinline__ u32 gate(u32 a, u32 b) {
  u32 s = pack(silu(lo(a)), silu(hi(a)));
  return pack(__fmul_rn(lo(s), lo(b)), __fmul_rn(hi(s), hi(b))); }

#ifndef EPI
#define EPI 0
#endif
#ifndef GROUP
#define GROUP 8
#endif
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
gemm(const __grid_constant__ Map ma, const __grid_constant__ Map mb, const __grid_constant__ Map mc, u16* c, u16* c3, u16* h, int M, int N, int K) {
  extern __shared__ char raw[];
  char* stages = (char*)(((u64)raw + 1023) & ~1023ull);
  __shared__ alignas(8) u64 full[STAGES], empty[STAGES];
  u32 rank; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) { for (int s = 0; s < STAGES; ++s) { init(full + s, 1); init(empty + s, 4); }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
  cluster_meet();
  constexpr int COLUMNS = EPI ? 128 : 256;
  int pairs = M / (2 * BM), across = N / COLUMNS, tiles = pairs * across, steps = K / BK, cluster = blockIdx.x / 2, clusters = gridDim.x / 2;
  int group = threadIdx.x / 128;
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) {
      int s = 0; u32 phase = 0;
      for (int t = cluster; t < tiles; t += clusters) {
        int block = t / (GROUP * across), in = t % (GROUP * across), height = min(GROUP, pairs - block * GROUP);
        int mp = block * GROUP + in % height, n = in / height, row = (mp * 2 + rank) * BM;
        for (int k = 0; k < steps; ++k) {
          wait_cluster(empty + s, phase ^ 1);
          expect(full + s, STAGE);
          char* at = stages + s * STAGE;
          load(at, &ma, full + s, k * BK, row);
          load_both(at + A_BYTES + rank * (B_BYTES / 2), EPI && rank ? &mc : &mb, full + s, k * BK, EPI ? n * 128 : n * 256 + rank * 128);
          if (++s == STAGES) { s = 0; phase ^= 1; } } } }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    int s = 0, before = -1, lane = threadIdx.x & 31, warp = (threadIdx.x / 32) & 3; u32 phase = 0;
    for (int t = cluster; t < tiles; t += clusters) {
      int block = t / (GROUP * across), in = t % (GROUP * across), height = min(GROUP, pairs - block * GROUP);
      int mp = block * GROUP + in % height, n = in / height;
      float d[128];
      for (int k = 0; k < steps; ++k) {
        wait_cluster(full + s, phase);
        char* at = stages + s * STAGE;
        u64 da = describe(at + (group - 1) * (A_BYTES / 2)), db = describe(at + A_BYTES);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int i = 0; i < BK / 16; ++i) WGMMA(d, da + 2 * i, db + 2 * i, (k | i) != 0);
        asm volatile("wgmma.commit_group.sync.aligned;\n wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (before >= 0 && (threadIdx.x & 127) < 2) arrive(empty + before, threadIdx.x & 127);
        before = s;
        if (++s == STAGES) { s = 0; phase ^= 1; } }
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
      if ((threadIdx.x & 127) < 2) arrive(empty + before, threadIdx.x & 127);
      before = -1;
      long row = (mp * 2 + rank) * BM + (group - 1) * 64 + warp * 16 + lane / 4;
      if (EPI == 0) {
        u32* p = (u32*)(c + row * N + n * 256 + 2 * (lane & 3)); u32* q = p + 4 * (long)N;  // 8 rows below
#pragma unroll
        for (int j = 0; j < 32; ++j) { p[j * 4] = pack(d[4 * j], d[4 * j + 1]); q[j * 4] = pack(d[4 * j + 2], d[4 * j + 3]); }
      } else {
        long o = (row * N + n * 128 + 2 * (lane & 3)) / 2, below = 4 * (long)N;
#pragma unroll
        for (int j = 0; j < 16; ++j) {
          u32 a0 = pack(d[4 * j], d[4 * j + 1]), a1 = pack(d[4 * j + 2], d[4 * j + 3]);
          u32 b0 = pack(d[64 + 4 * j], d[64 + 4 * j + 1]), b1 = pack(d[64 + 4 * j + 2], d[64 + 4 * j + 3]);
          ((u32*)c)[o + j * 4] = a0; ((u32*)c)[o + below + j * 4] = a1;
          ((u32*)c3)[o + j * 4] = b0; ((u32*)c3)[o + below + j * 4] = b1;
          ((u32*)h)[o + j * 4] = gate(a0, b0); ((u32*)h)[o + below + j * 4] = gate(a1, b1); } } } }
  cluster_meet();
}
