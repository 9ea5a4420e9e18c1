// The gradient of an RMSNorm's weight: the sum over rows of gradient * x * rstd, in ATen's order.
//
// A column of WIDTH has 32 chains; chain y adds rows 256 k + 8 y + i for i from 0 to 7, then k.
// WIDTH is a multiple of 64. Element is u16 for bf16, or float.
typedef ELEMENT Element;

// Two elements as stored: registers are scarce.
__device__ __forceinline__ u32 LoadPair(const u16* from) { return *(const u32*)from; }
__device__ __forceinline__ Vector8 LoadPair(const float* from) { return *(const Vector8*)from; }
__device__ __forceinline__ float First(u32 pair) { return Low(pair); }
__device__ __forceinline__ float Second(u32 pair) { return High(pair); }
__device__ __forceinline__ float First(const Vector8& pair) { return __uint_as_float(pair.x[0]); }
__device__ __forceinline__ float Second(const Vector8& pair) { return __uint_as_float(pair.x[1]); }
__device__ __forceinline__ void Put(u16* to, float value) { *to = Narrow(value); }
__device__ __forceinline__ void Put(float* to, float value) { *to = value; }

// A warp adds one chain of 64 columns. A block has 4 chains; 8 blocks share 64 columns.
extern "C" __global__ void __launch_bounds__(128)
    norm_weight_parts(const Element* __restrict__ gradient, const Element* __restrict__ x,
                      const float* __restrict__ rstd, float* __restrict__ parts, u64 groups) {
  constexpr int kAhead = sizeof(Element) == 2 ? 8 : 4;
  using Pair = decltype(LoadPair(gradient));
  const u32 chain = blockIdx.x % 8 * 4 + threadIdx.x / 32;
  const u32 column = blockIdx.x / 8 * 64 + threadIdx.x % 32 * 2;
  float first = 0.f;
  float second = 0.f;
  // kAhead groups of 256 rows are loaded before they are added. If the compiler knew their number,
  // it would load fewer in advance.
  for (u64 k = 0; k < groups; k += kAhead) {
    Pair g[kAhead][8], v[kAhead][8];
    float r[kAhead][8];
    UNROLL
    for (int h = 0; h < kAhead; ++h) {
      if (k + h >= groups) continue;
      const u64 row = (k + h) * 256 + chain * 8;
      Load(r[h], rstd + row);
      UNROLL
      for (int i = 0; i < 8; ++i) {
        g[h][i] = LoadPair(gradient + (row + i) * WIDTH + column);
        v[h][i] = LoadPair(x + (row + i) * WIDTH + column);
      }
    }
    UNROLL
    for (int h = 0; h < kAhead; ++h) {
      if (k + h >= groups) continue;
      UNROLL
      for (int i = 0; i < 8; ++i) {
        first = __fmaf_rn(r[h][i], __fmul_rn(First(g[h][i]), First(v[h][i])), first);
        second = __fmaf_rn(r[h][i], __fmul_rn(Second(g[h][i]), Second(v[h][i])), second);
      }
    }
  }
  parts[chain * WIDTH + column] = first;
  parts[chain * WIDTH + column + 1] = second;
}

// A butterfly over the 32 chains of each column: a warp takes 8 of the block's 32 columns.
extern "C" __global__ void __launch_bounds__(128)
    norm_weight_sums(const float* __restrict__ parts, Element* __restrict__ sums) {
  __shared__ float tile[32][33];
  const u32 first = blockIdx.x * 32;
  const u32 lane = threadIdx.x % 32;
  for (u32 y = threadIdx.x / 32; y < 32; y += 4) tile[y][lane] = parts[y * WIDTH + first + lane];
  __syncthreads();
  for (u32 c = threadIdx.x / 32; c < 32; c += 4) {
    float sum = tile[lane][c];
    UNROLL
    for (int offset = 16; offset > 0; offset >>= 1)
      sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, offset));
    if (lane == 0) Put(sums + first + c, sum);
  }
}

// For many rows and few columns, ATen adds chunks of 32 rows: part p is the sum of the chunks p,
// p + stored, and so on. ATen adds the parts. A warp adds 64 columns of one part.
extern "C" __global__ void __launch_bounds__(128)
    norm_weight_chunks(const Element* __restrict__ gradient, const Element* __restrict__ x,
                       const float* __restrict__ rstd, Element* __restrict__ parts, u64 chunks,
                       u64 stored) {
  using Pair = decltype(LoadPair(gradient));
  const u64 warp = blockIdx.x * 4 + threadIdx.x / 32;
  const u64 part = warp / (WIDTH / 64);
  const u64 column = warp % (WIDTH / 64) * 64 + threadIdx.x % 32 * 2;
  if (part >= stored) return;
  float first = 0.f;
  float second = 0.f;
  for (u64 chunk = part; chunk < chunks; chunk += stored) {
    UNROLL
    for (int h = 0; h < 4; ++h) {
      const u64 row = chunk * 32 + h * 8;
      Pair g[8], v[8];
      float r[8];
      Load(r, rstd + row);
      UNROLL
      for (int i = 0; i < 8; ++i) {
        g[i] = LoadPair(gradient + (row + i) * WIDTH + column);
        v[i] = LoadPair(x + (row + i) * WIDTH + column);
      }
      UNROLL
      for (int i = 0; i < 8; ++i) {
        first = __fmaf_rn(r[i], __fmul_rn(First(g[i]), First(v[i])), first);
        second = __fmaf_rn(r[i], __fmul_rn(Second(g[i]), Second(v[i])), second);
      }
    }
  }
  Put(parts + part * WIDTH + column, first);
  Put(parts + part * WIDTH + column + 1, second);
}
