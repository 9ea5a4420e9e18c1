// The beginning of every kernel's text. It compiles as CUDA C++, and on a CPU through
// test/host_cuda.h, which defines the functions that are written in PTX here.
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ float Low(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float High(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
__device__ __forceinline__ float Widen(u16 value) { return __uint_as_float((u32)value << 16); }

#ifdef __CUDACC__
#define DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#define UNROLL _Pragma("unroll")
#define UNROLL_4 _Pragma("unroll 4")
#define UNROLL_8 _Pragma("unroll 8")
// Rounds to bf16, to nearest, ties to even.
__device__ __forceinline__ u32 Narrow2(float low, float high) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ __forceinline__ u16 Narrow(float value) {
  u16 narrow;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow) : "f"(value));
  return narrow;
}
// The larger bf16 of each half. A NaN stays.
__device__ __forceinline__ u32 Max2(u32 a, u32 b) {
  u32 pair;
  asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
  return pair;
}
// Starts a copy of 8 bytes to shared memory. The thread that started it may read it after
// WaitForCopies.
__device__ __forceinline__ void CopyAsync8(void* shared, const void* global) {
  u32 to = (u32)__cvta_generic_to_shared(shared);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(global) : "memory");
}
__device__ __forceinline__ void WaitForCopies() {
  asm volatile("cp.async.commit_group;\n cp.async.wait_group 0;" ::: "memory");
}
// Blocks of a cluster: the number of this one, a barrier for all, and a store into another one's
// shared memory.
__device__ __forceinline__ u32 BlockOfCluster() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void ClusterBarrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}
__device__ __forceinline__ void StoreInCluster(float* where, int block, float value) {
  u32 own = (u32)__cvta_generic_to_shared(where);
  u32 other;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(own), "r"(block));
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(other), "f"(value) : "memory");
}
#else
#define DYNAMIC_SHARED(type, name) type* name = (type*)dynamic_shared.data()
#define UNROLL
#define UNROLL_4
#define UNROLL_8
#endif
