// Cross entropy of rows of bf16 logits, forward and backward: log_softmax in f32, the
// log-probability of each label, and the gradient of their sum times `scale`, rounded to bf16.
//
// COLUMNS: width of a row.
// BLOCKS: number of thread blocks that share a row (a cluster).
// RESIDENT: minimum number of blocks per multiprocessor, so that some load while others compute.
// KEEP: the row stays in shared memory.
//
// Rows add in the order of ATen's _log_softmax for rows that do not fit into shared memory: 1,024
// chains, of which chain t adds vectors of 4 number t + 1024 k, then the rest with stride 1,024; a
// tree over 32 lanes, then over 32 warps.
struct alignas(8) Four {
  u32 pair[2];
};
constexpr int kThreads = 1024 / BLOCKS;
// Rounds in which every chain has a vector, and the remaining elements.
constexpr int kRounds = COLUMNS / 4096;
constexpr int kRest = COLUMNS % 4096;
constexpr int kRestRounds = (kRest + 1023) / 1024;

__device__ __forceinline__ void Meet() {
#if BLOCKS == 1
  __syncthreads();
#else
  ClusterBarrier();
#endif
}

// ATen's maximum: a NaN stays.
__device__ __forceinline__ float Larger(float a, float b) {
  return a != a ? a : (b != b ? b : (a > b ? a : b));
}

template <bool kMax>
__device__ __forceinline__ float Merge(float a, float b) {
  return kMax ? Larger(a, b) : __fadd_rn(a, b);
}

// Reduces over all chains; every thread gets the result.
template <bool kMax>
__device__ __forceinline__ float OfAllChains(float value, float* by_warp, int chain) {
  UNROLL
  for (int offset = 16; offset > 0; offset >>= 1)
    value = Merge<kMax>(value, __shfl_down_sync(0xffffffffu, value, offset));
  if ((threadIdx.x & 31) == 0) {
#if BLOCKS == 1
    by_warp[chain / 32] = value;
#else
    UNROLL
    for (int block = 0; block < BLOCKS; ++block) StoreInCluster(by_warp + chain / 32, block, value);
#endif
  }
  Meet();
  value = by_warp[threadIdx.x & 31];
  UNROLL
  for (int offset = 16; offset > 0; offset >>= 1)
    value = Merge<kMax>(value, __shfl_down_sync(0xffffffffu, value, offset));
  return __shfl_sync(0xffffffffu, value, 0);
}

__device__ __forceinline__ float Exponential(float x, float max) {
  return expf(__fadd_rn(x, -max));
}
__device__ __forceinline__ float Gradient(float x, float max, float log_sum, float scale,
                                          bool hit) {
  float probability = expf(__fadd_rn(__fadd_rn(x, -max), -log_sum));
  return __fmaf_rn(scale, probability, hit ? -scale : 0.f);
}

// `gradient` may be `logits`. `picked` receives the log-probability of each row's label. `kinds`
// receives 0, `ignored` for rows that do not count, or 1 for labels outside the row, as labels of
// nll_loss for rows with one class.
extern "C" __global__ void
#if BLOCKS > 1
__cluster_dims__(BLOCKS, 1, 1)
#endif
__launch_bounds__(kThreads, RESIDENT) loss(const u16* logits, u16* gradient, const long long* labels,
                                 float* picked, long long* kinds, const float* scale_of_all,
                                 long long ignored) {
  DYNAMIC_SHARED(Four, row);
  __shared__ float by_warp[2][32];
#if BLOCKS == 1
  int chain = threadIdx.x;
#else
  int chain = BlockOfCluster() * kThreads + threadIdx.x;
#endif
  long long line = blockIdx.x / BLOCKS;
  const u16* from = logits + line * COLUMNS;
  u16* to = gradient + line * COLUMNS;
  const Four* vectors = (const Four*)from;
#if KEEP
  u16* rest = (u16*)(row + kRounds * kThreads);
#else
  (void)row;
#endif
#if BLOCKS > 1
  // All blocks of the cluster run.
  Meet();
#endif
#if KEEP
  UNROLL_4
  for (int k = 0; k < kRounds; ++k)
    CopyAsync8(row + k * kThreads + threadIdx.x, vectors + k * 1024 + chain);
  WaitForCopies();
#define FOUR(k) row[(k) * kThreads + threadIdx.x]
#define ONE(j, e) Widen(rest[(j) * kThreads + threadIdx.x])
#else
#define FOUR(k) vectors[(k) * 1024 + chain]
#define ONE(j, e) Widen(from[e])
#endif
  float max = -__uint_as_float(0x7f800000u);
  for (int j = 0; j < kRestRounds; ++j) {
    int e = kRounds * 4096 + j * 1024 + chain;
    if (e >= COLUMNS) continue;
#if KEEP
    rest[j * kThreads + threadIdx.x] = from[e];
#endif
    max = Larger(max, Widen(from[e]));
  }
  // Two negative infinities.
  u32 pairs = 0xff80ff80u;
  UNROLL_8
  for (int k = 0; k < kRounds; ++k) {
    Four v = FOUR(k);
    pairs = Max2(pairs, Max2(v.pair[0], v.pair[1]));
  }
  max = Larger(Larger(max, Low(pairs)), High(pairs));
  max = OfAllChains<true>(max, by_warp[0], chain);
  float sum = 0.f;
  UNROLL_8
  for (int k = 0; k < kRounds; ++k) {
    Four v = FOUR(k);
    sum = __fadd_rn(sum, Exponential(Low(v.pair[0]), max));
    sum = __fadd_rn(sum, Exponential(High(v.pair[0]), max));
    sum = __fadd_rn(sum, Exponential(Low(v.pair[1]), max));
    sum = __fadd_rn(sum, Exponential(High(v.pair[1]), max));
  }
  for (int j = 0; j < kRestRounds; ++j) {
    int e = kRounds * 4096 + j * 1024 + chain;
    if (e < COLUMNS) sum = __fadd_rn(sum, Exponential(ONE(j, e), max));
  }
  sum = OfAllChains<false>(sum, by_warp[1], chain);
  float log_sum = logf(sum);
  long long label = labels[line];
  bool counts = label != ignored;
  bool inside = label >= 0 && label < COLUMNS;
  float scale = counts ? *scale_of_all : 0.f;
  // The chain of the label, which has not overwritten it yet; chain 0 for rows without a label.
  int owner = 0;
  if (inside)
    owner = (int)(label < kRounds * 4096 ? label / 4 % 1024 : (label - kRounds * 4096) % 1024);
  float logit = 0.f;
  if (chain == owner) {
    if (inside) logit = Widen(from[label]);
    picked[line] = inside ? __fadd_rn(__fadd_rn(logit, -max), -log_sum) : 0.f;
    kinds[line] = !counts ? ignored : (inside ? 0 : 1);
  }
  UNROLL_8
  for (int k = 0; k < kRounds; ++k) {
    Four v = FOUR(k);
    v.pair[0] = Narrow2(Gradient(Low(v.pair[0]), max, log_sum, scale, false),
                        Gradient(High(v.pair[0]), max, log_sum, scale, false));
    v.pair[1] = Narrow2(Gradient(Low(v.pair[1]), max, log_sum, scale, false),
                        Gradient(High(v.pair[1]), max, log_sum, scale, false));
    ((Four*)to)[k * 1024 + chain] = v;
  }
  for (int j = 0; j < kRestRounds; ++j) {
    int e = kRounds * 4096 + j * 1024 + chain;
    if (e < COLUMNS) to[e] = Narrow(Gradient(ONE(j, e), max, log_sum, scale, false));
  }
  // This thread has just written the gradient of any other column there.
  if (inside && chain == owner) to[label] = Narrow(Gradient(logit, max, log_sum, scale, true));
#undef FOUR
#undef ONE
}
