// Budgets on random training steps: kept to the byte, and never slower for being larger.
#include <gtest/gtest.h>

#include "heddle/analysis/memory.h"
#include "heddle/compile/memory_search.h"
#include "heddle/ir/parse.h"
#include "heddle/ops/ops.h"
#include "heddle/pass/manager.h"
#include "heddle/passes/passes.h"
#include "test/checks/random_training.h"

namespace heddle {
namespace {

constexpr uint32_t kSteps = 40;
constexpr int64_t kBudgets = 6;

Bytes PeakOf(Module module, const std::string& policy) {
  Result<Pipeline> pipeline =
      ParsePipeline("clean, " + CheckpointPipeline(policy) + ", fsdp", Passes());
  EXPECT_TRUE(RunPipeline(module, *pipeline).ok()) << policy;
  return ComputeMemoryTimeline(module.graphs[0], Liveness(module.graphs[0])).peak;
}

TEST(MemorySearch, KeepsItsBudget) {
  Result<CostModel> model = CostModel::Make(*LoadCluster("h100-8x"), {});
  ASSERT_TRUE(model.ok());
  Result<Pipeline> after = ParsePipeline("fsdp", Passes());
  int mixed = 0;
  for (uint32_t seed = 0; seed < kSteps; ++seed) {
    Result<Module> module = ParseModule(RandomTraining(seed), "random", Ops());
    ASSERT_TRUE(module.ok());
    Result<std::vector<MemoryChoice>> curve = MemorySearch(*module, *after, *model).Sweep();
    ASSERT_TRUE(curve.ok()) << Format(curve.diagnostics());
    Bytes most = curve->front().peak;
    Bytes least = curve->back().peak;
    Nanos last{INT64_MAX};
    for (int64_t i = 0; i <= kBudgets; ++i) {
      Bytes budget = least + Bytes{(most - least).value * i / kBudgets};
      // A search of its own for each, as a user has it.
      Result<MemoryChoice> choice = MemorySearch(*module, *after, *model).Within(budget);
      ASSERT_TRUE(choice.ok()) << seed << Format(choice.diagnostics());
      EXPECT_LE(choice->peak, budget) << seed << " " << choice->policy;
      EXPECT_EQ(choice->peak, PeakOf(*module, choice->policy)) << seed << " " << choice->policy;
      EXPECT_LE(choice->step, last) << seed << " " << choice->policy;
      last = choice->step;
      mixed += choice->policy.find(',') != std::string::npos;
    }
    for (const MemoryChoice& fixed : *curve) {
      Result<MemoryChoice> choice = MemorySearch(*module, *after, *model).Within(fixed.peak);
      EXPECT_LE(choice->step, fixed.step) << seed << " " << fixed.policy;
    }
  }
  EXPECT_GT(mixed, 0);
}

TEST(MemorySearch, SaysWhatIsLeast) {
  Result<CostModel> model = CostModel::Make(*LoadCluster("h100-8x"), {});
  Result<Pipeline> after = ParsePipeline("fsdp", Passes());
  Result<Module> module = ParseModule(RandomTraining(1), "random", Ops());
  Result<MemoryChoice> choice = MemorySearch(*module, *after, *model).Within(Bytes{1});
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.diagnostics()[0].kind, Diag::kInfeasible);
}

}  // namespace
}  // namespace heddle
