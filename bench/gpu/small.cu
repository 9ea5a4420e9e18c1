typedef unsigned int u32; typedef unsigned long long u64;
__device__ __forceinline__ void after() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void early() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
// A kernel that lasts a given number of cycles.
extern "C" __global__ void spin(long cycles) { long b = clock64(); while (clock64() - b < cycles) {} }
extern "C" __global__ void spin_pdl(long cycles) { early(); after(); long b = clock64(); while (clock64() - b < cycles) {} }
extern "C" __global__ void spin_late(long cycles) { after(); long b = clock64(); while (clock64() - b < cycles) {} early(); }
// y = x + 1 over n vectors of 16 bytes. In-place chains make each kernel depend on the one before.
extern "C" __global__ void __launch_bounds__(256) bump(float4* x, long n) {
  long i = (long)blockIdx.x * 256 + threadIdx.x; if (i < n) { float4 v = x[i]; v.x += 1; v.y += 1; v.z += 1; v.w += 1; x[i] = v; } }
extern "C" __global__ void __launch_bounds__(256) bump_pdl(float4* x, long n) {
  early(); long i = (long)blockIdx.x * 256 + threadIdx.x; after();
  if (i < n) { float4 v = x[i]; v.x += 1; v.y += 1; v.z += 1; v.w += 1; x[i] = v; } }
// Copies n vectors with few blocks: a persistent grid.
extern "C" __global__ void __launch_bounds__(512) copy(const float4* __restrict__ x, float4* __restrict__ y, long n) {
  long step = (long)gridDim.x * 512;
  for (long i = (long)blockIdx.x * 512 + threadIdx.x; i < n; i += step * 8) {
    float4 v[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) if (i + k * step < n) v[k] = __ldcs(x + i + k * step);
#pragma unroll
    for (int k = 0; k < 8; ++k) if (i + k * step < n) __stcs(y + i + k * step, v[k]); } }
// One tile per thread, like a pointwise kernel.
extern "C" __global__ void __launch_bounds__(256) copy_flat(const float4* __restrict__ x, float4* __restrict__ y, long n) {
  long i = (long)blockIdx.x * 1024 + threadIdx.x;
#pragma unroll
  for (int k = 0; k < 4; ++k) if (i + k * 256 < n) __stcs(y + i + k * 256, __ldcs(x + i + k * 256)); }
