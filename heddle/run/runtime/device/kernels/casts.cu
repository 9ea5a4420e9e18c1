// Casts of a list of tensors, from f32 to bf16 or back (WIDEN).
//
// A block of 256 threads casts 4,096 elements of a tensor.
#if WIDEN
typedef u16 From;
typedef float To;
#else
typedef float From;
typedef u16 To;
#endif
struct Entry {
  const From* from;
  To* to;
  u64 count;
  // The number of its first block.
  u32 block;
  // Whether both are aligned to 16 bytes.
  u32 aligned;
};
struct List {
  Entry entries[ENTRIES];
  u32 count;
};

__device__ __forceinline__ void Cast(float* to, u16 from) { *to = Widen(from); }
__device__ __forceinline__ void Cast(u16* to, float from) { *to = Narrow(from); }

extern "C" __global__ void __launch_bounds__(256) casts(const __grid_constant__ List list) {
  // The last entry whose first block is not after this one.
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
  u64 begin = (u64)(blockIdx.x - entry.block) * 4096;
  if (entry.aligned && begin + 4096 <= entry.count) {
    float v[2][8];
    UNROLL
    for (int k = 0; k < 2; ++k) Load(v[k], entry.from + begin + (k * 256 + threadIdx.x) * 8);
    UNROLL
    for (int k = 0; k < 2; ++k) Store(entry.to + begin + (k * 256 + threadIdx.x) * 8, v[k]);
    return;
  }
  u64 stop = begin + 4096 < entry.count ? begin + 4096 : entry.count;
  for (u64 i = begin + threadIdx.x; i < stop; i += 256) Cast(entry.to + i, entry.from[i]);
}
