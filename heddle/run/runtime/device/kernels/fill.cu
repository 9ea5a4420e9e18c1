// Fills small memory. Replaces a graph's memset node, around which a GPU waits longer.
extern "C" __global__ void __launch_bounds__(256) fill(u32* to, u32 value, u64 words) {
  const u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
  if (i < words) to[i] = value;
}
