// Adds rows to rows, in the order of ATen's deterministic kernel: row r of the result is row r of
// `self`, then plus each row i of `source` with index[i] = r, for ascending i, rounded after every
// addition.
//
// Until a row of the result is computed, its first 64 bytes have the number of its sources, and the
// first 15 of them in any order. WIDTH is the number of elements of a row, a multiple of 16 bytes.
// Element is u16 for bf16, or float. ZERO: `self` is zero and not read.
typedef ELEMENT Element;
static constexpr u32 kListed = 15;
static constexpr u32 kVector = 16 / sizeof(Element);

__device__ __forceinline__ void RoundTo(u16, float (&v)[kVector]) { Round(v); }
__device__ __forceinline__ void RoundTo(float, float (&)[kVector]) {}

// Negative indices count from the end.
__device__ __forceinline__ u64 RowOf(long long index, u64 rows) {
  return index < 0 ? (u64)index + rows : (u64)index;
}

extern "C" __global__ void __launch_bounds__(256) index_add_start(Element* result, u64 rows) {
  const u64 row = (u64)blockIdx.x * 256 + threadIdx.x;
  if (row < rows) *(u32*)(result + row * WIDTH) = 0;
}

extern "C" __global__ void __launch_bounds__(256)
    index_add_list(const long long* __restrict__ index, Element* result, u64 sources, u64 rows) {
  const u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
  if (i >= sources) return;
  const u64 row = RowOf(index[i], rows);
  if (row >= rows) __trap();
  u32* listed = (u32*)(result + row * WIDTH);
  const u32 place = atomicAdd(listed, 1u);
  if (place < kListed) listed[1 + place] = (u32)i;
}

__device__ __forceinline__ void Begin(float (&sum)[kVector], const Element* self) {
#if ZERO
  (void)self;
  UNROLL
  for (u32 j = 0; j < kVector; ++j) sum[j] = 0.f;
#else
  Load(sum, self);
#endif
}
__device__ __forceinline__ void AddRow(float (&sum)[kVector], const Element* from) {
  float next[kVector];
  Load(next, from);
  UNROLL
  for (u32 j = 0; j < kVector; ++j) sum[j] = Add(sum[j], next[j]);
  RoundTo(Element(), sum);
}

// A block has a row. 64 registers are enough; without a number of blocks, ptxas takes fewer and
// spills for sm_80.
extern "C" __global__ void __launch_bounds__(BLOCK, 1024 / BLOCK)
    index_add_rows(const Element* __restrict__ self, const long long* __restrict__ index,
                   const Element* __restrict__ source, Element* result, u64 sources, u64 rows) {
  __shared__ u32 listed[16];
  __shared__ u32 sorted[16];
  __shared__ u32 adds[BLOCK];
  const u64 row = blockIdx.x;
  const u32* head = (const u32*)(result + row * WIDTH);
  const u32 found = *head;
  if (threadIdx.x < 15 && threadIdx.x < found) listed[threadIdx.x] = head[1 + threadIdx.x];
  // From here on, the row may be overwritten.
  __syncthreads();
  if (found <= kListed) {
    if (threadIdx.x < found) {
      u32 place = 0;
      for (u32 k = 0; k < found; ++k) place += listed[k] < listed[threadIdx.x] ? 1 : 0;
      sorted[place] = listed[threadIdx.x];
    }
    __syncthreads();
    for (u32 v = threadIdx.x * kVector; v < WIDTH; v += BLOCK * kVector) {
      float sum[kVector];
      Begin(sum, self + row * WIDTH + v);
      UNROLL_4
      for (u32 k = 0; k < found; ++k) AddRow(sum, source + (u64)sorted[k] * WIDTH + v);
      Store(result + row * WIDTH + v, sum);
    }
    return;
  }
  // Too many to be listed: look at every index.
  for (u32 v = threadIdx.x * kVector; v < WIDTH; v += BLOCK * kVector) {
    float sum[kVector];
    Begin(sum, self + row * WIDTH + v);
    Store(result + row * WIDTH + v, sum);
  }
  for (u64 first = 0; first < sources; first += BLOCK) {
    const u64 i = first + threadIdx.x;
    adds[threadIdx.x] = i < sources && RowOf(index[i], rows) == row ? 1 : 0;
    __syncthreads();
    for (u32 k = 0; k < BLOCK; ++k) {
      if (!adds[k]) continue;
      for (u32 v = threadIdx.x * kVector; v < WIDTH; v += BLOCK * kVector) {
        float sum[kVector];
        Load(sum, result + row * WIDTH + v);
        AddRow(sum, source + (first + k) * WIDTH + v);
        Store(result + row * WIDTH + v, sum);
      }
    }
    __syncthreads();
  }
}
