// Squares of the norms of tensors, f32 or bf16 that ATen would cast to f32 first, in the order of
// ATen's _foreach_norm: a block of 512 threads adds a chunk of 65,536 elements in 4 sums a thread,
// and another block adds the sums of a tensor's chunks.
struct Entry {
  const void* from;
  u64 count;
  // The number of its first chunk.
  u32 block;
  // Whether it is bf16.
  u32 narrow;
};
struct List {
  Entry entries[ENTRIES];
  u32 count;
};

// Of 512 threads; every thread gets it.
__device__ __forceinline__ float BlockSum(float sum) {
  __shared__ float by_warp[16];
  UNROLL
  for (int offset = 16; offset > 0; offset >>= 1)
    sum = __fadd_rn(sum, __shfl_down_sync(0xffffffffu, sum, offset));
  if (threadIdx.x % 32 == 0) by_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = threadIdx.x % 32 < 16 ? by_warp[threadIdx.x % 32] : 0.f;
  UNROLL
  for (int offset = 16; offset > 0; offset >>= 1)
    sum = __fadd_rn(sum, __shfl_down_sync(0xffffffffu, sum, offset));
  return __shfl_sync(0xffffffffu, sum, 0);
}

template <typename Element>
__device__ __forceinline__ void AddChunk(float (&sums)[4], const Element* from, u64 count) {
  if (count % 4 != 0) {
    // Elements 512 apart, one for each sum.
    const u64 end = count < 65536 ? count : 65536;
    for (u64 first = threadIdx.x; first < end; first += 2048) {
      UNROLL
      for (int j = 0; j < 4; ++j) {
        if (first + j * 512 >= end) continue;
        float value = Wide(from[first + j * 512]);
        sums[j] = __fmaf_rn(value, value, sums[j]);
      }
    }
    return;
  }
  // Vectors of 4. Several are loaded before they are added.
  constexpr int kAhead = 8;
  const u32 end = count < 65536 ? (u32)count / 4 : 16384;
  for (u32 first = threadIdx.x; first < end; first += 512 * kAhead) {
    float v[kAhead][4];
    UNROLL
    for (int k = 0; k < kAhead; ++k) {
      if (first + k * 512 < end) Load(v[k], from + (first + k * 512) * 4);
    }
    UNROLL
    for (int k = 0; k < kAhead; ++k) {
      if (first + k * 512 >= end) continue;
      UNROLL
      for (int j = 0; j < 4; ++j) sums[j] = __fmaf_rn(v[k][j], v[k][j], sums[j]);
    }
  }
}

extern "C" __global__ void __launch_bounds__(512)
    squared_norm_parts(const __grid_constant__ List list, float* parts) {
  // The last entry whose first chunk is not after this one.
  u32 first = 0;
  u32 end = list.count;
  while (end - first > 1) {
    u32 middle = (first + end) / 2;
    if (list.entries[middle].block <= blockIdx.x) {
      first = middle;
    } else {
      end = middle;
    }
  }
  const Entry& entry = list.entries[first];
  const u64 begin = (u64)(blockIdx.x - entry.block) * 65536;
  float sums[4] = {0.f, 0.f, 0.f, 0.f};
  if (entry.narrow) {
    AddChunk(sums, (const u16*)entry.from + begin, entry.count - begin);
  } else {
    AddChunk(sums, (const float*)entry.from + begin, entry.count - begin);
  }
  float sum = __fadd_rn(__fadd_rn(__fadd_rn(__fadd_rn(0.f, sums[0]), sums[1]), sums[2]), sums[3]);
  sum = BlockSum(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// A block for each tensor.
extern "C" __global__ void __launch_bounds__(512)
    squared_norm_sums(const __grid_constant__ List list, const float* parts, float* squares) {
  const Entry& entry = list.entries[blockIdx.x];
  const u32 chunks = (u32)((entry.count + 65535) / 65536);
  float sum = 0.f;
  for (u32 i = threadIdx.x; i < chunks; i += 512) sum = __fadd_rn(sum, parts[entry.block + i]);
  const float norm = __fsqrt_rn(BlockSum(sum));
  if (threadIdx.x == 0) squares[blockIdx.x] = __fmul_rn(norm, norm);
}
