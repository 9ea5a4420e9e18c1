// Functions that generated kernels call (heddle/core/kernel/program.h). Each rounds like ATen's op
// for f32; kernels round to bf16 themselves.
struct alignas(8) Vector8 {
  u32 x[2];
};
struct alignas(16) Vector16 {
  u32 x[4];
};

__device__ __forceinline__ float Wide(u16 value) { return Widen(value); }
__device__ __forceinline__ float Wide(float value) { return value; }

__device__ __forceinline__ void Load(float (&v)[8], const u16* from) {
  Vector16 all = *(const Vector16*)from;
  UNROLL
  for (int j = 0; j < 4; ++j) {
    v[2 * j] = Low(all.x[j]);
    v[2 * j + 1] = High(all.x[j]);
  }
}
__device__ __forceinline__ void Load(float (&v)[4], const u16* from) {
  Vector8 all = *(const Vector8*)from;
  UNROLL
  for (int j = 0; j < 2; ++j) {
    v[2 * j] = Low(all.x[j]);
    v[2 * j + 1] = High(all.x[j]);
  }
}
template <int N>
__device__ __forceinline__ void Load(float (&v)[N], const float* from) {
  UNROLL
  for (int k = 0; k < N / 4; ++k) {
    Vector16 all = ((const Vector16*)from)[k];
    UNROLL
    for (int j = 0; j < 4; ++j) v[4 * k + j] = __uint_as_float(all.x[j]);
  }
}
__device__ __forceinline__ void Store(u16* to, const float (&v)[8]) {
  Vector16 all;
  UNROLL
  for (int j = 0; j < 4; ++j) all.x[j] = Narrow2(v[2 * j], v[2 * j + 1]);
  *(Vector16*)to = all;
}
__device__ __forceinline__ void Store(u16* to, const float (&v)[4]) {
  Vector8 all;
  UNROLL
  for (int j = 0; j < 2; ++j) all.x[j] = Narrow2(v[2 * j], v[2 * j + 1]);
  *(Vector8*)to = all;
}
template <int N>
__device__ __forceinline__ void Store(float* to, const float (&v)[N]) {
  UNROLL
  for (int k = 0; k < N / 4; ++k) {
    Vector16 all;
    UNROLL
    for (int j = 0; j < 4; ++j) all.x[j] = __float_as_uint(v[4 * k + j]);
    ((Vector16*)to)[k] = all;
  }
}
// Rounds to bf16 and back.
template <int N>
__device__ __forceinline__ void Round(float (&v)[N]) {
  UNROLL
  for (int j = 0; j < N; j += 2) {
    u32 pair = Narrow2(v[j], v[j + 1]);
    v[j] = Low(pair);
    v[j + 1] = High(pair);
  }
}

__device__ __forceinline__ float Add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ float Sub(float a, float b) { return __fadd_rn(a, -b); }
__device__ __forceinline__ float Mul(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float Div(float a, float b) { return __fdiv_rn(a, b); }
__device__ __forceinline__ float Neg(float a) { return -a; }
__device__ __forceinline__ float Sigmoid(float x) {
  return __fdiv_rn(1.f, __fadd_rn(1.f, expf(-x)));
}
__device__ __forceinline__ float Silu(float x) { return __fdiv_rn(x, __fadd_rn(1.f, expf(-x))); }
__device__ __forceinline__ float SiluBackward(float gradient, float x) {
  float s = Sigmoid(x);
  return __fmul_rn(__fmul_rn(gradient, s), __fmaf_rn(x, __fadd_rn(1.f, -s), 1.f));
}
// Products of complex numbers, whose real and imaginary parts alternate.
template <int N>
__device__ __forceinline__ void ComplexMul(float (&v)[N], const float (&x)[N],
                                           const float (&y)[N]) {
  UNROLL
  for (int j = 0; j < N; j += 2) {
    v[j] = __fmaf_rn(x[j], y[j], -__fmul_rn(x[j + 1], y[j + 1]));
    v[j + 1] = __fmaf_rn(x[j], y[j + 1], __fmul_rn(x[j + 1], y[j]));
  }
}

// The sum of a row in ATen's order for RMSNorm: a tree over the lanes of a warp, then the sums of 4
// warps as (0 + 2) + (1 + 3). If one warp has the row, the other three would add zeros.
template <int kThreads>
__device__ __forceinline__ float RowSum(float sum) {
  UNROLL
  for (int offset = 16; offset > 0; offset >>= 1)
    sum = __fadd_rn(sum, __shfl_down_sync(0xffffffffu, sum, offset));
  if (kThreads == 32)
    return __fadd_rn(__fadd_rn(__shfl_sync(0xffffffffu, sum, 0), 0.f), 0.f);
  __shared__ float by_warp[4];
  if (threadIdx.x % 32 == 0) by_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  return __fadd_rn(__fadd_rn(by_warp[0], by_warp[2]), __fadd_rn(by_warp[1], by_warp[3]));
}
