#include "heddle/run/runtime/shards.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

namespace heddle::run {
namespace {

const Mesh kCube({{"pp", 2}, {"dp", 2}, {"tp", 2}});

std::vector<at::Tensor> Shards(const at::Tensor& whole, const Placement& placement,
                               const Mesh& mesh) {
  std::vector<at::Tensor> parts;
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
    parts.push_back(ShardOf(whole, placement, mesh, rank));
  return parts;
}

TEST(Shards, RandomPlacementsRoundTrip) {
  std::mt19937 random(1);
  auto below = [&](uint32_t n) { return static_cast<size_t>(random() % n); };
  for (int i = 0; i < 500; ++i) {
    std::vector<int64_t> sizes(1 + below(3));
    int64_t count = 1;
    for (int64_t& size : sizes) count *= size = static_cast<int64_t>(below(8));
    at::Tensor whole = (at::arange(count, at::kFloat) - 5).view(sizes);
    Placement placement;
    placement.splits.resize(sizes.size());
    std::vector<AxisId> axes{0, 1, 2};
    std::ranges::shuffle(axes, random);
    for (AxisId axis : axes) {
      switch (below(4)) {
        case 0: break;
        case 1: placement.partials.push_back({axis, static_cast<ReduceOp>(below(5))}); break;
        default: placement.splits[below(static_cast<uint32_t>(sizes.size()))].Add(axis);
      }
    }
    placement.Normalize();
    Result<at::Tensor> again =
        Assemble(Shards(whole, placement, kCube), placement, kCube, whole.sizes());
    ASSERT_TRUE(again.ok()) << Format(again.diagnostics());
    ASSERT_TRUE(SameBits(*again, whole)) << "placement " << i;
  }
}

TEST(Shards, CutsNestTheOutermostAxisFirst) {
  Mesh mesh({{"dp", 2}, {"tp", 2}});
  at::Tensor whole = at::arange(5, at::kFloat);
  Placement placement;
  placement.splits = {Axes(1)};
  placement.splits[0].Add(0);
  // tp splits 5 into 3 and 2; dp splits these into 2 and 1, and 1 and 1. Ranks are (dp, tp).
  std::vector<std::vector<float>> expected{{0, 1}, {3}, {2}, {4}};
  for (int64_t rank = 0; rank < 4; ++rank)
    EXPECT_TRUE(ShardOf(whole, placement, mesh, rank)
                    .equal(at::tensor(expected[static_cast<size_t>(rank)])));
}

TEST(Shards, PendingSumsLieOnTheFirstRank) {
  at::Tensor whole = at::ones({2});
  Placement sum{{}, {{0, ReduceOp::kSum}, {2, ReduceOp::kSum}}};
  Placement most{{}, {{0, ReduceOp::kMax}, {2, ReduceOp::kMax}}};
  for (int64_t rank = 0; rank < 8; ++rank) {
    bool first = rank == 0 || rank == 2;
    EXPECT_TRUE(ShardOf(whole, sum, kCube, rank).equal(first ? whole : at::zeros({2})));
    EXPECT_TRUE(ShardOf(whole, most, kCube, rank).equal(whole));
  }
}

TEST(Shards, PendingSumsAddUpInRankOrder) {
  Mesh mesh({{"dp", 2}, {"tp", 2}});
  Placement sum{{}, {{0, ReduceOp::kSum}, {1, ReduceOp::kSum}}};
  std::vector<at::Tensor> parts;
  for (double value : {1e8, 1.0, -1e8, 1.0}) parts.push_back(at::full({}, value, at::kFloat));
  // Summing axis by axis would give 0.
  EXPECT_EQ(Assemble(parts, sum, mesh, {})->item<float>(), 1.0f);
}

TEST(Shards, ReplicasMustAgreeInEveryBit) {
  Placement placement;
  placement.splits = {Axes(1)};
  std::vector<at::Tensor> parts = Shards(at::zeros({4}), placement, kCube);
  parts[7] = at::zeros({2}).neg();
  Result<at::Tensor> whole = Assemble(parts, placement, kCube, {4});
  ASSERT_FALSE(whole.ok());
  EXPECT_EQ(whole.diagnostics()[0].kind, Diag::kReplicasDiffer);
  EXPECT_EQ(whole.diagnostics()[0].message,
            "the replicas of ranks 2 and 7 differ: Float[2] on cpu and Float[2] on cpu");
}

TEST(Shards, PartsMustFit) {
  Placement placement;
  placement.splits = {Axes(1)};
  std::vector<at::Tensor> parts = Shards(at::zeros({5}), placement, kCube);
  parts[2] = at::zeros({3});
  Result<at::Tensor> whole = Assemble(parts, placement, kCube, {5});
  ASSERT_FALSE(whole.ok());
  EXPECT_EQ(whole.diagnostics()[0].kind, Diag::kShapeMismatch);
  EXPECT_EQ(whole.diagnostics()[0].message,
            "rank 2 has Float[3] on cpu, but its part of the whole is Float[2] on cpu");
}

TEST(Shards, BitsOfSpecialNumbers) {
  at::Tensor nan = at::full({}, std::nan(""), at::kFloat);
  EXPECT_TRUE(SameBits(nan, nan.clone()));
  EXPECT_FALSE(SameBits(at::zeros({1}), at::zeros({1}).neg()));
  EXPECT_FALSE(SameBits(at::zeros({1}), at::zeros({1}, at::kInt)));
  EXPECT_TRUE(SameBits(at::zeros({0, 2}), at::zeros({0, 2})));
}

}  // namespace
}  // namespace heddle::run
