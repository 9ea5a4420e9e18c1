// Compares the orders of additions with their definitions.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>

#include "heddle/run/runtime/reducer.h"
#include "heddle/run/runtime/shards.h"

namespace heddle::run {
namespace {

TEST(Reducer, TextRoundTrips) {
  for (const char* text : {"rank", "gloo", "ring:1", "ring:4", "tree"})
    EXPECT_EQ(Reducer::Parse(text)->Format(), text);
  for (const char* text : {"", "ring", "ring:", "ring:0", "ring:65", "ring:2x", "glo", "nccl"})
    EXPECT_EQ(Reducer::Parse(text).diagnostics()[0].kind, Diag::kBadChoice) << text;
}

TEST(Reducer, SegmentsCoverAPayloadOnceAndNameEveryRankOnce) {
  for (const char* text : {"rank", "gloo", "ring:1", "ring:3", "ring:4"}) {
    Reducer reducer = *Reducer::Parse(text);
    for (int64_t ranks : {1, 2, 3, 5, 8, 64}) {
      for (int64_t row : {0, 1, 2, 7, 1000, 300'001}) {
        for (bool rows : {false, true}) {
          int64_t at = 0;
          for (const Reducer::Segment& segment : reducer.Segments(row * ranks, 4, ranks, rows)) {
            ASSERT_EQ(segment.begin, at) << text << " " << ranks << " " << row;
            at = segment.end;
            std::vector<int64_t> order = segment.order;
            std::sort(order.begin(), order.end());
            for (int64_t r = 0; r < ranks; ++r) ASSERT_EQ(order[static_cast<size_t>(r)], r);
            // A ring ends at the owner of the row.
            if (rows && std::string_view(text).starts_with("ring")) {
              EXPECT_EQ(segment.order.back(), segment.begin / row);
            }
          }
          ASSERT_EQ(at, row * ranks) << text << " " << ranks << " " << row;
        }
      }
    }
  }
}

// Chunks of Gloo's ring, as measured between processes.
TEST(Reducer, GlooCutsAPayloadByItsSize) {
  Reducer gloo(Reducer::Order::kGloo);
  // 12 elements of 4 bytes on 3 ranks: 6 pieces of 8 bytes, two per chunk.
  std::vector<Reducer::Segment> segments = gloo.Segments(12, 4, 3, true);
  ASSERT_EQ(segments.size(), 3u);
  EXPECT_EQ(segments[1].begin, 4);
  EXPECT_EQ(segments[1].order, (std::vector<int64_t>{0, 2, 1}));
  // 9 elements: pieces of 6 bytes are rounded up to whole elements, so chunks do not align with
  // rows.
  segments = gloo.Segments(9, 4, 3, true);
  EXPECT_EQ(segments[1].begin, 4);
  EXPECT_EQ(segments[2].end, 9);
  // Pieces have at most one MiB.
  segments = gloo.Segments(int64_t{3} << 20, 4, 2, true);
  EXPECT_EQ(segments[1].begin, int64_t{3} << 19);
}

TEST(Reducer, AddsInTheDeclaredOrder) {
  for (at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const char* text : {"rank", "gloo", "ring:2"}) {
      Reducer reducer = *Reducer::Parse(text);
      std::vector<at::Tensor> payloads;
      for (int r = 0; r < 5; ++r) payloads.push_back(at::rand({5 * 4099}, at::kDouble).to(type));
      at::Tensor sum = reducer.Reduce(payloads, ReduceOp::kSum, true);
      int64_t size = payloads[0].numel();
      for (const Reducer::Segment& segment :
           reducer.Segments(size, static_cast<int64_t>(sum.element_size()), 5, true)) {
        auto part = [&](int64_t rank) {
          return payloads[static_cast<size_t>(rank)].narrow(0, segment.begin,
                                                            segment.end - segment.begin);
        };
        at::Tensor expected = part(segment.order[0]).clone();
        for (size_t k = 1; k < segment.order.size(); ++k)
          expected = part(segment.order[k]) + expected;
        EXPECT_TRUE(SameBits(sum.narrow(0, segment.begin, segment.end - segment.begin), expected))
            << text << " " << type;
      }
    }
  }
}

TEST(Reducer, TreesAddPairs) {
  std::vector<at::Tensor> parts;
  for (int r = 0; r < 5; ++r) parts.push_back(at::rand({100}));
  at::Tensor expected = ((parts[0] + parts[1]) + parts[2]) + (parts[3] + parts[4]);
  EXPECT_TRUE(
      SameBits(Reducer(Reducer::Order::kTree).Reduce(parts, ReduceOp::kSum, false), expected));
}

TEST(Reducer, OtherReductionsAndAverages) {
  std::vector<at::Tensor> parts{at::arange(4), at::arange(4).flip(0), at::full({4}, 2, at::kLong)};
  Reducer gloo(Reducer::Order::kGloo);
  EXPECT_TRUE(gloo.Reduce(parts, ReduceOp::kSum, false).equal(at::full({4}, 5, at::kLong)));
  EXPECT_EQ(gloo.Reduce(parts, ReduceOp::kMax, false)[1].item<int64_t>(), 2);
  EXPECT_EQ(gloo.Reduce(parts, ReduceOp::kMin, false)[0].item<int64_t>(), 0);
  EXPECT_EQ(gloo.Reduce(parts, ReduceOp::kProduct, false)[1].item<int64_t>(), 4);
  std::vector<at::Tensor> numbers{at::full({4}, 1.0), at::full({4}, 2.0)};
  EXPECT_TRUE(gloo.Reduce(numbers, ReduceOp::kAvg, true).equal(at::full({4}, 1.5)));
}

}  // namespace
}  // namespace heddle::run
