// The cache returns the result of a new search.
#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "heddle/compile/shard/redistribution_cache.h"

namespace heddle::compile {
namespace {

class RandomPlacements {
 public:
  RandomPlacements(uint32_t seed, const Mesh& mesh) : random_(seed), mesh_(mesh) {}

  Placement Next(size_t rank, bool partials) {
    Placement out;
    out.splits.resize(rank);
    std::vector<AxisId> axes;
    for (AxisId axis = 0; axis < mesh_.axes().size(); ++axis) axes.push_back(axis);
    std::shuffle(axes.begin(), axes.end(), random_);
    for (AxisId axis : axes) {
      size_t use = random_() % (rank + 2);
      if (use < rank) out.splits[use].Add(axis);
      if (use == rank && partials) out.partials.push_back({axis, ReduceOp::kSum});
    }
    std::ranges::sort(out.partials, {}, &Partial::axis);
    out.Normalize();
    return out;
  }

 private:
  std::mt19937 random_;
  const Mesh& mesh_;
};

TEST(RedistributionCache, FindsWhatASearchFinds) {
  for (const std::vector<MeshAxis>& axes : {std::vector<MeshAxis>{{"a", 2}, {"b", 2}, {"c", 2}},
                                            {{"a", 4}, {"b", 2}},
                                            {{"a", 2}, {"b", 3}},
                                            {{"a", 2}, {"b", 4}, {"c", 8}}}) {
    Mesh mesh(axes);
    RedistributionCache cache(mesh);
    RandomPlacements random(7, mesh);
    for (int i = 0; i < 4000; ++i) {
      const Dims all[] = {{64, 128}, {64, 512, 1024}, {8, 8},          {6, 10, 12}, {7, 72, 16},
                          {36},      {64, 8, 64},     {128, 64, 6, 32}};
      const Dims& dims = all[i % std::size(all)];
      auto order = static_cast<ReduceOrder>(i % 3);
      Placement from = random.Next(dims.size(), true);
      Placement to = random.Next(dims.size(), false);
      std::vector<PackedPlacement> found;
      bool is_found = cache.Find(*Pack(from), *Pack(to), dims, order, found);
      Result<std::vector<RedistributionStep>> expected =
          PlanRedistribution(from, to, dims, mesh, order);
      ASSERT_EQ(is_found, expected.ok());
      if (!is_found) continue;
      std::vector<PackedPlacement> stops;
      for (const RedistributionStep& step : *expected) stops.push_back(*Pack(step.to));
      ASSERT_EQ(found, stops) << FormatPlacement(from, dims.size(), mesh) << " to "
                              << FormatPlacement(to, dims.size(), mesh);
    }
  }
}

TEST(Redistribution, TensorsWithTooManyDimensionsAreRefused) {
  const Mesh mesh({{"a", 2}});
  Placement split;
  split.splits = {Axes(0)};
  EXPECT_TRUE(PlanRedistribution(split, {}, Dims(30, 2), mesh).ok());
  Result<std::vector<RedistributionStep>> steps = PlanRedistribution(split, {}, Dims(31, 2), mesh);
  ASSERT_FALSE(steps.ok());
  EXPECT_EQ(steps.diagnostics()[0].kind, Diag::kRedistribution);
}

}  // namespace
}  // namespace heddle::compile
