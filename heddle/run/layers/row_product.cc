#include "heddle/run/layers/row_product.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "heddle/core/base/check.h"

// HEDDLE_VECTOR_CLONES compiles a function for several vector widths; the machine chooses. Bits are
// the same: lanes are fixed, and multiplications and additions round apart. HEDDLE_UNROLL unrolls a
// loop, so that its sums are in registers.
#ifdef __clang__
#define HEDDLE_UNROLL _Pragma("unroll")
#else
#define HEDDLE_UNROLL _Pragma("GCC unroll 8")
#endif
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define HEDDLE_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define HEDDLE_VECTOR_CLONES
#endif

namespace heddle::run {
namespace {

// Vectors of 64 bytes.
using Floats = float __attribute__((vector_size(64)));
using Doubles = double __attribute__((vector_size(64)));
using Words = uint32_t __attribute__((vector_size(64)));

// The upper half of an f32, as bf16.
struct Half {
  uint16_t bits;
};

// Number of vectors of sums for 64 bytes of a weight.
template <typename Weight>
constexpr int64_t kParts = 1;
template <>
constexpr int64_t kParts<Half> = 2;

inline void Load(const float* from, Floats* to) { std::memcpy(to, from, sizeof(*to)); }
inline void Load(const double* from, Doubles* to) { std::memcpy(to, from, sizeof(*to)); }
// Elements at even places first, then those at odd places.
inline void Load(const Half* from, Floats* to) {
  Words words;
  std::memcpy(&words, from, sizeof(words));
  Words even = words << 16;
  Words odd = words & 0xFFFF0000u;
  std::memcpy(&to[0], &even, sizeof(even));
  std::memcpy(&to[1], &odd, sizeof(odd));
}
inline float Value(float x) { return x; }
inline double Value(double x) { return x; }
inline float Value(Half x) {
  uint32_t word = static_cast<uint32_t>(x.bits) << 16;
  float value = 0;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

// Multiplies rows of x with rows of the weight, all of `size`. The results of a row of x are
// `stride` after those of the row before.
template <int64_t rows, int64_t outputs, typename Vector, typename Sum, typename Weight>
inline __attribute__((always_inline)) void Tile(const Sum* x, const Weight* weight, int64_t size,
                                                Sum* out, int64_t stride) {
  constexpr int64_t kLanes = sizeof(Vector) / sizeof(Sum);
  constexpr int64_t parts = kParts<Weight>;
  Vector sums[rows][outputs] = {};
  int64_t i = 0;
  for (; i + parts * kLanes <= size; i += parts * kLanes) {
    Vector left[rows][parts];
    HEDDLE_UNROLL for (int64_t r = 0; r < rows; ++r) {
      HEDDLE_UNROLL for (int64_t p = 0; p < parts; ++p)
          Load(x + r * size + i + p * kLanes, &left[r][p]);
    }
    HEDDLE_UNROLL for (int64_t o = 0; o < outputs; ++o) {
      Vector right[parts];
      Load(weight + o * size + i, right);
      HEDDLE_UNROLL for (int64_t r = 0; r < rows; ++r) {
        HEDDLE_UNROLL for (int64_t p = 0; p < parts; ++p) sums[r][o] += left[r][p] * right[p];
      }
    }
  }
  HEDDLE_UNROLL for (int64_t r = 0; r < rows; ++r) {
    HEDDLE_UNROLL for (int64_t o = 0; o < outputs; ++o) {
      Sum sum = 0;
      for (int64_t lane = 0; lane < kLanes; ++lane) sum += sums[r][o][lane];
      for (int64_t rest = i; rest < size; ++rest)
        sum += x[r * size + rest] * Value(weight[o * size + rest]);
      out[r * stride + o] = sum;
    }
  }
}

// The weight is read once for all rows of x.
template <typename Vector, typename Sum, typename Weight>
inline __attribute__((always_inline)) void Tiles(const Sum* x, int64_t rows, const Weight* weight,
                                                 int64_t outputs, int64_t size, Sum* out,
                                                 int64_t stride) {
  constexpr int64_t kRows = 2;
  constexpr int64_t kOutputs = 4;
  int64_t o = 0;
  for (; o + kOutputs <= outputs; o += kOutputs) {
    int64_t r = 0;
    for (; r + kRows <= rows; r += kRows)
      Tile<kRows, kOutputs, Vector>(x + r * size, weight + o * size, size, out + r * stride + o,
                                    stride);
    for (; r < rows; ++r)
      Tile<1, kOutputs, Vector>(x + r * size, weight + o * size, size, out + r * stride + o,
                                stride);
  }
  for (; o < outputs; ++o) {
    for (int64_t r = 0; r < rows; ++r)
      Tile<1, 1, Vector>(x + r * size, weight + o * size, size, out + r * stride + o, stride);
  }
}

#define HEDDLE_MULTIPLY(Vector, Sum, Weight)                                                    \
  HEDDLE_VECTOR_CLONES void Multiply(const Sum* x, int64_t rows, const Weight* weight,          \
                                     int64_t outputs, int64_t size, Sum* out, int64_t stride) { \
    Tiles<Vector>(x, rows, weight, outputs, size, out, stride);                                 \
  }
HEDDLE_MULTIPLY(Floats, float, float)
HEDDLE_MULTIPLY(Floats, float, Half)
HEDDLE_MULTIPLY(Doubles, double, double)
#undef HEDDLE_MULTIPLY

// Orders rows of x as Load orders those of a weight in bf16.
void SplitPlaces(float* x, int64_t rows, int64_t size) {
  constexpr int64_t kBlock = sizeof(Words) / sizeof(Half);
  float block[kBlock];
  for (int64_t r = 0; r < rows; ++r) {
    for (float* at = x + r * size; at + kBlock <= x + (r + 1) * size; at += kBlock) {
      std::copy_n(at, kBlock, block);
      for (int64_t i = 0; i < kBlock; ++i) at[i / 2 + i % 2 * kBlock / 2] = block[i];
    }
  }
}

template <typename Sum, typename Weight>
at::Tensor Product(const at::Tensor& x, const at::Tensor& weight, at::ScalarType sum_type) {
  int64_t size = weight.size(1);
  int64_t outputs = weight.size(0);
  at::Tensor left = x.reshape({-1, size}).to(sum_type).contiguous();
  at::Tensor right = weight.contiguous();
  at::Tensor out = at::empty({left.size(0), outputs}, left.options());
  // A copy, because its type is another one.
  if constexpr (std::is_same_v<Weight, Half>)
    SplitPlaces(left.mutable_data_ptr<Sum>(), left.size(0), size);
  const auto* from = left.const_data_ptr<Sum>();
  const auto* weights = static_cast<const Weight*>(right.const_data_ptr());
  auto* to = out.mutable_data_ptr<Sum>();
  // A thread needs some microseconds to start.
  int64_t grain = std::max<int64_t>(16, (int64_t{1} << 16) / (size * left.size(0)));
  at::parallel_for(0, outputs, grain, [&](int64_t begin, int64_t end) {
    Multiply(from, left.size(0), weights + begin * size, end - begin, size, to + begin, outputs);
  });
  return out;
}

}  // namespace

at::Tensor RowProduct(const at::Tensor& x, const at::Tensor& weight,
                      const std::optional<at::Tensor>& bias) {
  HEDDLE_CHECK(weight.is_cpu() && x.scalar_type() == weight.scalar_type(),
               "decoding multiplies tensors of one type on a CPU");
  at::Tensor out =
      weight.scalar_type() == at::kDouble     ? Product<double, double>(x, weight, at::kDouble)
      : weight.scalar_type() == at::kBFloat16 ? Product<float, Half>(x, weight, at::kFloat)
                                              : Product<float, float>(x, weight, at::kFloat);
  if (bias) out.add_(*bias);
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(0);
  return out.view(shape).to(x.scalar_type());
}

}  // namespace heddle::run
