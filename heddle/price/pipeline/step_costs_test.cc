#include "heddle/price/pipeline/step_costs.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "heddle/core/ops/ops.h"

namespace heddle::price {
namespace {

// All ways to cut `count` positions into `stages` parts, as first positions.
void ForEachCut(int64_t count, int64_t stages, std::vector<int64_t>& firsts,
                const std::function<void()>& visit) {
  if (static_cast<int64_t>(firsts.size()) == stages) return visit();
  for (int64_t next = firsts.back() + 1; next < count; ++next) {
    firsts.push_back(next);
    ForEachCut(count, stages, firsts, visit);
    firsts.pop_back();
  }
}

TEST(BalanceStages, FindsTheBestCut) {
  std::mt19937 random(5);
  Graph empty("g", Ops());
  for (int trial = 0; trial < 300; ++trial) {
    StepCosts step{Layers(empty), {}, {}};
    auto count = static_cast<int64_t>(2 + random() % 9);
    auto stages = static_cast<int64_t>(1 + random() % static_cast<uint64_t>(count));
    for (int64_t i = 0; i < count; ++i)
      step.positions.push_back({{{static_cast<int64_t>(random() % 20)}, {1}, {0}, {}}, {}});
    auto measure = [&](const std::vector<int64_t>& firsts) {
      std::pair<int64_t, int64_t> out;
      for (size_t stage = 0; stage < firsts.size(); ++stage) {
        int64_t end = stage + 1 < firsts.size() ? firsts[stage + 1] : count;
        int64_t length = 0;
        for (int64_t i = firsts[stage]; i < end; ++i)
          length += step.positions[static_cast<size_t>(i)].cost.forward.value + 1;
        out.first = std::max(out.first, length);
        out.second += length * length;
      }
      return out;
    };
    std::pair<int64_t, int64_t> best{INT64_MAX, INT64_MAX};
    std::vector<int64_t> firsts{0};
    ForEachCut(count, stages, firsts, [&] { best = std::min(best, measure(firsts)); });
    std::vector<int64_t> found = BalanceStages(step, stages);
    ASSERT_EQ(found.size(), static_cast<size_t>(stages));
    ASSERT_EQ(found[0], 0);
    EXPECT_EQ(measure(found), best) << trial;
  }
}

}  // namespace
}  // namespace heddle::price
