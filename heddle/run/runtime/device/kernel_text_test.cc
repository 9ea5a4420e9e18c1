// Runs the kernels' text on a CPU, and compares it with a scalar program of the same order.
#include <algorithm>

#include <gtest/gtest.h>

#include "heddle/core/base/hash.h"
#include "heddle/run/runtime/device/test/host_cuda.h"

#pragma GCC diagnostic ignored "-Wsign-compare"

namespace heddle::run::host_cuda {
namespace {

// Each variant has its own functions.
#define BLOCKS 1
#define RESIDENT 1
namespace kept {
#define loss loss_kept
#define COLUMNS 20492
#define KEEP 1
#include "heddle/run/runtime/device/kernels/prelude.cu"
// Must follow the text above.
#include "heddle/run/runtime/device/kernels/loss.cu"
#undef KEEP
#undef COLUMNS
#undef loss
}  // namespace kept
#undef DYNAMIC_SHARED
namespace read_again {
#define loss loss_read_again
#define COLUMNS 16384
#define KEEP 0
#include "heddle/run/runtime/device/kernels/prelude.cu"
// Must follow the text above.
#include "heddle/run/runtime/device/kernels/loss.cu"
#undef KEEP
#undef COLUMNS
#undef loss
}  // namespace read_again
#undef DYNAMIC_SHARED
namespace optimizer {
#define ENTRIES 8
#define CLIP 1
#define DECAY 1
#include "heddle/run/runtime/device/kernels/prelude.cu"
// Must follow the text above.
#include "heddle/run/runtime/device/kernels/adamw.cu"
}  // namespace optimizer

#undef DYNAMIC_SHARED
namespace add_narrow {
#define index_add_start narrow_start
#define index_add_list narrow_list
#define index_add_rows narrow_rows
#define WIDTH 1096
#define BLOCK 64
#define ELEMENT u16
#define ZERO 0
#include "heddle/run/runtime/device/kernels/prelude.cu"
// Must follow the text above.
#include "heddle/run/runtime/device/kernels/elements.cu"
// Must follow the text above.
#include "heddle/run/runtime/device/kernels/index_add.cu"
#undef ZERO
#undef ELEMENT
#undef BLOCK
#undef WIDTH
#undef index_add_rows
#undef index_add_list
#undef index_add_start
}  // namespace add_narrow
#undef DYNAMIC_SHARED
namespace add_wide {
#define WIDTH 68
#define BLOCK 32
#define ELEMENT float
#define ZERO 1
#include "heddle/run/runtime/device/kernels/prelude.cu"
// Must follow the text above.
#include "heddle/run/runtime/device/kernels/elements.cu"
// Must follow the text above.
#include "heddle/run/runtime/device/kernels/index_add.cu"
}  // namespace add_wide

float Random(uint64_t seed) { return static_cast<float>(Scramble(seed) >> 40) * 0x1p-23F - 1; }

float Wide(uint16_t value) { return __uint_as_float(static_cast<uint32_t>(value) << 16); }

// Chains, then a tree over 32 lanes and one over 32 warps.
template <typename Merge>
float OverChains(const std::vector<float>& chains, Merge merge) {
  auto tree = [&](std::vector<float> lanes) {
    for (size_t offset = 16; offset > 0; offset /= 2) {
      for (size_t i = 0; i < offset; ++i) lanes[i] = merge(lanes[i], lanes[i + offset]);
    }
    return lanes[0];
  };
  std::vector<float> warps;
  for (size_t w = 0; w < 32; ++w)
    warps.push_back(tree({chains.begin() + static_cast<ptrdiff_t>(32 * w),
                          chains.begin() + static_cast<ptrdiff_t>(32 * w + 32)}));
  return tree(warps);
}

struct LossOfRow {
  std::vector<uint16_t> gradient;
  float picked = 0;
  long long kind = 0;
};

LossOfRow ReferenceLoss(const std::vector<uint16_t>& row, long long label, float scale) {
  size_t whole = row.size() / 4096 * 4096;
  auto by_chain = [&](float start, auto add) {
    std::vector<float> chains(1024, start);
    for (size_t t = 0; t < 1024; ++t) {
      for (size_t e = 4 * t; e < whole; e += 4096) {
        for (size_t i = e; i < e + 4; ++i) chains[t] = add(chains[t], Wide(row[i]));
      }
      for (size_t e = whole + t; e < row.size(); e += 1024)
        chains[t] = add(chains[t], Wide(row[e]));
    }
    return chains;
  };
  auto larger = [](float a, float b) { return a > b ? a : b; };
  float max = OverChains(by_chain(-INFINITY, larger), larger);
  auto plus = [](float a, float b) { return a + b; };
  float sum = OverChains(by_chain(0, [&](float s, float x) { return s + expf(x - max); }), plus);
  float log_sum = logf(sum);
  bool counts = label != -100;
  bool inside = label >= 0 && label < static_cast<long long>(row.size());
  LossOfRow result;
  for (size_t e = 0; e < row.size(); ++e) {
    float g = counts ? scale : 0;
    float hit = static_cast<long long>(e) == label ? -g : 0.F;
    result.gradient.push_back(Narrow(fmaf(g, expf((Wide(row[e]) - max) - log_sum), hit)));
  }
  result.picked = inside ? (Wide(row[static_cast<size_t>(label)]) - max) - log_sum : 0;
  result.kind = !counts ? -100 : inside ? 0 : 1;
  return result;
}

template <typename Kernel>
void CheckLoss(Kernel kernel, size_t columns, size_t shared_bytes, bool in_place) {
  // The first and last element, an element of a vector, ignored and invalid labels.
  std::vector<long long> labels = {0,    static_cast<long long>(columns) - 1, 4097,
                                   -100, static_cast<long long>(columns),     -7};
  std::vector<uint16_t> logits;
  for (size_t i = 0; i < labels.size() * columns; ++i) logits.push_back(Narrow(6 * Random(i)));
  float scale = 0.125F;
  for (unsigned step : {1u, 1021u}) {
    std::vector<uint16_t> from = logits;
    std::vector<uint16_t> other(logits.size(), 0x1234);
    std::vector<uint16_t>& gradient = in_place ? from : other;
    std::vector<float> picked(labels.size(), -1);
    std::vector<long long> kinds(labels.size(), -1);
    Launch(static_cast<unsigned>(labels.size()), 1024, shared_bytes, step, [&] {
      kernel(from.data(), gradient.data(), labels.data(), picked.data(), kinds.data(), &scale,
             -100);
    });
    for (size_t r = 0; r < labels.size(); ++r) {
      auto row = logits.begin() + static_cast<ptrdiff_t>(r * columns);
      LossOfRow expected =
          ReferenceLoss({row, row + static_cast<ptrdiff_t>(columns)}, labels[r], scale);
      size_t differing = 0;
      for (size_t e = 0; e < columns; ++e)
        differing += gradient[r * columns + e] != expected.gradient[e] ? 1 : 0;
      EXPECT_EQ(differing, 0u) << "row " << r << ", step " << step;
      EXPECT_EQ(BitsOf(picked[r]), BitsOf(expected.picked)) << r;
      EXPECT_EQ(kinds[r], expected.kind) << r;
    }
  }
}

TEST(KernelText, LossInSharedMemoryAddsInAtensOrder) {
  // 5 rounds of vectors, and one of single elements.
  CheckLoss(kept::loss_kept, 20492, 5 * 1024 * 8 + 1024 * 2, false);
}

TEST(KernelText, LossThatReadsRowsAgainAddsInAtensOrder) {
  CheckLoss(read_again::loss_read_again, 16384, 0, true);
}

TEST(KernelText, AdamWUpdatesEveryElementOnce) {
  std::vector<size_t> counts = {4096, 1, 5, 8195, 4095, 4099};
  size_t guard = 8;
  // Tensors of four kinds, surrounded by elements that must not change. The third is not aligned,
  // and the last one has a bf16 gradient.
  struct alignas(16) Room {
    float x[16384];
  };
  std::vector<std::array<Room, 4>> rooms(counts.size());
  auto fill = [&](size_t t, size_t k, size_t i) {
    float value = Random(t << 40 | k << 32 | i);
    return k == 3 ? std::abs(value) * 1e-3F : value;
  };
  struct alignas(16) {
    uint16_t x[16384];
  } narrow;
  for (size_t i = 0; i < counts[5]; ++i) narrow.x[i] = Narrow(fill(5, 1, guard + i));
  // All have a copy but the second; the fourth one's is not aligned.
  constexpr uint16_t kUnwritten = 0x1234;
  struct alignas(16) Copy {
    uint16_t x[16384];
  };
  std::vector<Copy> copies(counts.size());
  auto copy_of = [&](size_t t) { return copies[t].x + guard + (t == 3 ? 1 : 0); };
  optimizer::List list{};
  uint32_t blocks = 0;
  for (size_t t = 0; t < counts.size(); ++t) {
    size_t shift = guard + (t == 2 ? 1 : 0);
    for (size_t k = 0; k < 4; ++k) {
      for (size_t i = 0; i < 16384; ++i) rooms[t][k].x[i] = fill(t, k, i);
    }
    const void* grad = t == 5 ? static_cast<const void*>(narrow.x) : rooms[t][1].x + shift;
    std::ranges::fill(copies[t].x, kUnwritten);
    list.entries[t] = {rooms[t][0].x + shift,
                       grad,
                       rooms[t][2].x + shift,
                       rooms[t][3].x + shift,
                       t == 1 ? nullptr : copy_of(t),
                       counts[t],
                       blocks,
                       t == 5             ? 3u
                       : t == 2 || t == 3 ? 0u
                                          : 1u};
    blocks += static_cast<uint32_t>((counts[t] + 4095) / 4096);
  }
  list.count = static_cast<uint32_t>(counts.size());
  float lr = 3e-4F;
  float step = 7;
  float clip = 0.4F;
  Launch(blocks, 256, 0, 77,
         [&] { optimizer::adamw(list, &lr, &step, &clip, 0.9F, 0.95F, 0.1F, 1e-8F); });
  float first = 1 - powf(0.9F, step);
  float root = std::sqrt(1 - powf(0.95F, step));
  for (size_t t = 0; t < counts.size(); ++t) {
    size_t shift = guard + (t == 2 ? 1 : 0);
    for (size_t i = 0; i < 16384; ++i) {
      float p = fill(t, 0, i);
      float m = fill(t, 2, i);
      float v = fill(t, 3, i);
      if (i >= shift && i < shift + counts[t]) {
        float g = (t == 5 ? Wide(narrow.x[i - shift]) : fill(t, 1, i)) * clip;
        p = fmaf(-(lr * 0.1F), p, p);
        m = fmaf(0.9F, m, fmaf(-0.9F, g, g));
        v = fmaf(0.95F, v, fmaf(-0.95F, g * g, g * g));
        p = p - (lr / first * m) / (std::sqrt(v) / root + 1e-8F);
      }
      ASSERT_EQ(BitsOf(rooms[t][0].x[i]), BitsOf(p)) << t << " " << i;
      ASSERT_EQ(BitsOf(rooms[t][1].x[i]), BitsOf(fill(t, 1, i)));
      ASSERT_EQ(BitsOf(rooms[t][2].x[i]), BitsOf(m)) << t << " " << i;
      ASSERT_EQ(BitsOf(rooms[t][3].x[i]), BitsOf(v)) << t << " " << i;
    }
    auto first_copy = static_cast<size_t>(copy_of(t) - copies[t].x);
    for (size_t i = 0; i < 16384; ++i) {
      bool copied = t != 1 && i >= first_copy && i < first_copy + counts[t];
      uint16_t expected = copied ? Narrow(rooms[t][0].x[i - first_copy + shift]) : kUnwritten;
      ASSERT_EQ(copies[t].x[i], expected) << t << " " << i;
    }
  }
}

uint16_t Rounded(float value, uint16_t) { return Narrow(value); }
float Rounded(float value, float) { return value; }
float Wide(float value) { return value; }

// Rows with 0, 1, several, 15 and 16 sources, and one with most of them; negative indices.
template <typename Element, typename Start, typename List, typename Rows>
void CheckAddedRows(Start start, List list, Rows add, size_t width, unsigned block, bool zero) {
  constexpr size_t kRows = 19;
  std::vector<long long> index(300, 4);
  for (size_t i = 0; i < 20; ++i) index[9 * i] = static_cast<long long>(i % 7 + 5);
  for (size_t i = 0; i < 15; ++i) index[9 * i + 2] = 17;
  for (size_t i = 0; i < 16; ++i) index[9 * i + 4] = -1;
  auto numbers = [&](size_t rows, uint64_t seed) {
    std::vector<Element> out(rows * width);
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = Rounded(zero && seed == 1 ? 0 : 5 * Random(seed << 32 | i), Element());
    return out;
  };
  std::vector<Element> self = numbers(kRows, 1);
  std::vector<Element> source = numbers(index.size(), 2);
  std::vector<Element> expected = self;
  for (size_t i = 0; i < index.size(); ++i) {
    size_t row = index[i] < 0 ? kRows - 1 : static_cast<size_t>(index[i]);
    for (size_t e = 0; e < width; ++e) {
      Element& sum = expected[row * width + e];
      sum = Rounded(Wide(sum) + Wide(source[i * width + e]), Element());
    }
  }
  for (unsigned step : {1u, 21u}) {
    struct alignas(16) Vector {
      uint32_t x[4];
    };
    std::vector<Vector> room(kRows * width * sizeof(Element) / 16, Vector{{7, 7, 7, 7}});
    auto* result = reinterpret_cast<Element*>(room.data());
    Launch(1, 256, 0, step, [&] { start(result, kRows); });
    Launch(2, 256, 0, step, [&] { list(index.data(), result, index.size(), kRows); });
    Launch(kRows, block, 0, step, [&] {
      add(zero ? nullptr : self.data(), index.data(), source.data(), result, index.size(), kRows);
    });
    EXPECT_EQ(std::memcmp(result, expected.data(), expected.size() * sizeof(Element)), 0) << step;
  }
}

TEST(KernelText, RowsAreAddedInAscendingOrder) {
  CheckAddedRows<uint16_t>(add_narrow::narrow_start, add_narrow::narrow_list,
                           add_narrow::narrow_rows, 1096, 64, false);
  CheckAddedRows<float>(add_wide::index_add_start, add_wide::index_add_list,
                        add_wide::index_add_rows, 68, 32, true);
}

}  // namespace
}  // namespace heddle::run::host_cuda
