// Clipping and AdamW over a list of f32 tensors, with the roundings of ATen's mul and
// _fused_adamw. Gradients are f32, or bf16 that ATen would cast to f32 first. A copy, if there is
// one, receives the new parameter in bf16.
//
// A block of 256 threads updates 4,096 elements of a tensor.
struct Entry {
  float* param;
  const void* grad;
  float* average;
  float* square;
  u16* copy;
  u64 count;
  // The number of its first block.
  u32 block;
  // 1: all five are aligned to 16 bytes; 2: the gradient is bf16.
  u32 flags;
};
struct List {
  Entry entries[ENTRIES];
  u32 count;
};
struct alignas(16) Vector {
  float x[4];
};
struct alignas(8) Narrow4 {
  u32 pair[2];
};
struct Numbers {
  float decay;
  float beta1;
  float beta2;
  float step_size;
  float root;
  float eps;
  float clip;
};

__device__ __forceinline__ void Update(float& param, float grad, float& average, float& square,
                                       const Numbers& n) {
#if CLIP
  grad = __fmul_rn(grad, n.clip);
#endif
#if DECAY
  param = __fmaf_rn(-n.decay, param, param);
#endif
  average = __fmaf_rn(n.beta1, average, __fmaf_rn(-n.beta1, grad, grad));
  float squared = __fmul_rn(grad, grad);
  square = __fmaf_rn(n.beta2, square, __fmaf_rn(-n.beta2, squared, squared));
  float spread = __fadd_rn(__fdiv_rn(__fsqrt_rn(square), n.root), n.eps);
  param = __fadd_rn(param, -__fdiv_rn(__fmul_rn(n.step_size, average), spread));
}

__device__ __forceinline__ Vector Widened(const Vector& grad) { return grad; }
__device__ __forceinline__ Vector Widened(const Narrow4& grad) {
  return {Low(grad.pair[0]), High(grad.pair[0]), Low(grad.pair[1]), High(grad.pair[1])};
}

// Updates the 4,096 elements of a block from vector `first` on. All loads come first.
template <typename Grad>
__device__ __forceinline__ void UpdateBlock(const Entry& entry, u64 first, const Numbers& n) {
  Vector param[4], average[4], square[4];
  Grad grad[4];
  UNROLL
  for (int k = 0; k < 4; ++k) {
    u64 i = first + k * 256 + threadIdx.x;
    param[k] = ((const Vector*)entry.param)[i];
    grad[k] = ((const Grad*)entry.grad)[i];
    average[k] = ((const Vector*)entry.average)[i];
    square[k] = ((const Vector*)entry.square)[i];
  }
  UNROLL
  for (int k = 0; k < 4; ++k) {
    const Vector wide = Widened(grad[k]);
    UNROLL
    for (int j = 0; j < 4; ++j)
      Update(param[k].x[j], wide.x[j], average[k].x[j], square[k].x[j], n);
    u64 i = first + k * 256 + threadIdx.x;
    ((Vector*)entry.param)[i] = param[k];
    if (entry.copy)
      ((Narrow4*)entry.copy)[i] = {Narrow2(param[k].x[0], param[k].x[1]),
                                   Narrow2(param[k].x[2], param[k].x[3])};
    ((Vector*)entry.average)[i] = average[k];
    ((Vector*)entry.square)[i] = square[k];
  }
}

extern "C" __global__ void __launch_bounds__(256)
    adamw(const __grid_constant__ List list, const float* lr, const float* step, const float* clip,
          float beta1, float beta2, float weight_decay, float eps) {
  __shared__ float corrections[2];
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
  if (threadIdx.x == 0) {
    corrections[0] = __fadd_rn(1.f, -powf(beta1, *step));
    corrections[1] = __fsqrt_rn(__fadd_rn(1.f, -powf(beta2, *step)));
  }
  __syncthreads();
  Numbers n = {__fmul_rn(*lr, weight_decay), beta1, beta2, __fdiv_rn(*lr, corrections[0]),
               corrections[1], eps, CLIP ? *clip : 1.f};
  const bool narrow = entry.flags & 2;
  if ((entry.flags & 1) && begin + 4096 <= entry.count) {
    if (narrow) {
      UpdateBlock<Narrow4>(entry, begin / 4, n);
    } else {
      UpdateBlock<Vector>(entry, begin / 4, n);
    }
    return;
  }
  u64 stop = begin + 4096 < entry.count ? begin + 4096 : entry.count;
  for (u64 i = begin + threadIdx.x; i < stop; i += 256) {
    float grad = narrow ? Widen(((const u16*)entry.grad)[i]) : ((const float*)entry.grad)[i];
    Update(entry.param[i], grad, entry.average[i], entry.square[i], n);
    if (entry.copy) entry.copy[i] = Narrow(entry.param[i]);
  }
}
