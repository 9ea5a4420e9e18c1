#include "heddle/search/solve/reduce/min_plus.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace heddle::search {
namespace {

// Uses wider vectors on machines that have them. There are no products, so all variants round the
// same way. The variant is selected before sanitizers are initialized, so builds with
// AddressSanitizer have one.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define HEDDLE_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define HEDDLE_WIDE
#endif

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A vector type that compilers map to the machine's registers.
using Lanes = double __attribute__((vector_size(32)));

void MinInto(double* __restrict out, const double* __restrict row, double base, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    double sum = base + row[i];
    out[i] = sum < out[i] ? sum : out[i];
  }
}

}  // namespace

HEDDLE_WIDE void MinOverRows(const double* matrix, size_t rows, size_t columns, const double* add,
                             double* out) {
  std::fill_n(out, columns, kInfinity);
  for (size_t r = 0; r < rows; ++r) MinInto(out, matrix + r * columns, add[r], columns);
}

HEDDLE_WIDE void MinOverColumns(const double* matrix, size_t rows, size_t columns,
                                const double* add, double* out) {
  // Computes several minima together: the order of comparisons does not matter, and the machine
  // does not wait for each.
  constexpr size_t kWidth = sizeof(Lanes) / sizeof(double);
  constexpr size_t kAtOnce = 4;
  for (size_t r = 0; r < rows; ++r) {
    const double* row = matrix + r * columns;
    Lanes least[kAtOnce];
    for (Lanes& lanes : least) lanes = Lanes{} + kInfinity;
    auto look = [&](size_t at, Lanes& lanes) {
      Lanes sum;
      Lanes more;
      std::memcpy(&sum, row + at, sizeof(sum));
      std::memcpy(&more, add + at, sizeof(more));
      sum += more;
      lanes = sum < lanes ? sum : lanes;
    };
    size_t c = 0;
    for (; c + kAtOnce * kWidth <= columns; c += kAtOnce * kWidth) {
      for (size_t i = 0; i < kAtOnce; ++i) look(c + i * kWidth, least[i]);
    }
    for (; c + kWidth <= columns; c += kWidth) look(c, least[0]);
    for (size_t i = 1; i < kAtOnce; ++i) least[0] = least[i] < least[0] ? least[i] : least[0];
    out[r] = kInfinity;
    for (; c < columns; ++c) out[r] = std::min(out[r], add[c] + row[c]);
    for (size_t i = 0; i < kWidth; ++i) out[r] = std::min(out[r], least[0][i]);
  }
}

HEDDLE_WIDE void MinOverInner(const double* a, const double* b, size_t inner, size_t rows,
                              size_t columns, const double* add, double* out) {
  std::fill_n(out, rows * columns, kInfinity);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t k = 0; k < inner; ++k) {
      double base = a[k * rows + r] + add[k];
      if (base < kInfinity) MinInto(out + r * columns, b + k * columns, base, columns);
    }
  }
}

HEDDLE_WIDE size_t FirstLeast(const double* row, size_t size) {
  // First finds the minimum, four entries at a time, and then its index.
  double least[4] = {kInfinity, kInfinity, kInfinity, kInfinity};
  size_t i = 0;
  for (; i + 4 <= size; i += 4) {
    for (size_t k = 0; k < 4; ++k) least[k] = row[i + k] < least[k] ? row[i + k] : least[k];
  }
  for (; i < size; ++i) least[0] = std::min(least[0], row[i]);
  double all = std::min(std::min(least[0], least[1]), std::min(least[2], least[3]));
  size_t at = 0;
  while (row[at] != all) ++at;
  return at;
}

HEDDLE_WIDE void AddDifference(const double* __restrict row, double base, size_t size,
                               double* __restrict out) {
  for (size_t i = 0; i < size; ++i) out[i] += row[i] - base;
}

HEDDLE_WIDE double LargestDifference(const double* a, const double* b, size_t size) {
  double most[4] = {-kInfinity, -kInfinity, -kInfinity, -kInfinity};
  size_t i = 0;
  for (; i + 4 <= size; i += 4) {
    for (size_t k = 0; k < 4; ++k) {
      double more = b[i + k] - a[i + k];
      most[k] = more > most[k] ? more : most[k];
    }
  }
  for (; i < size; ++i) {
    double more = b[i] - a[i];
    most[0] = more > most[0] ? more : most[0];
  }
  return std::max(std::max(most[0], most[1]), std::max(most[2], most[3]));
}

}  // namespace heddle::search
