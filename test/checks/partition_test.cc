// Random training steps, split and joined: whatever policy decided, the second split is the first, in text.
#include <gtest/gtest.h>

#include "heddle/ir/parse.h"
#include "heddle/ir/print.h"
#include "heddle/ops/ops.h"
#include "heddle/pass/manager.h"
#include "heddle/passes/passes.h"
#include "test/checks/random_training.h"

namespace heddle {
namespace {

constexpr uint32_t kSteps = 500;
constexpr const char* kPolicies[] = {"none", "full", "layers:2", "selective", "min-cut"};

std::string After(Module module, const std::string& pipeline) {
  Result<RunReport> report = RunPipeline(module, *ParsePipeline(pipeline, Passes()));
  EXPECT_TRUE(report.ok()) << pipeline << "\n" << Format(report.diagnostics());
  return Print(module);
}

TEST(Partition, TwiceIsOnce) {
  for (uint32_t seed = 0; seed < kSteps; ++seed) {
    Result<Module> step = ParseModule(RandomTraining(seed), "random", Ops());
    ASSERT_TRUE(step.ok()) << Format(step.diagnostics());
    std::string policy = kPolicies[seed % std::size(kPolicies)];
    std::string once = "checkpoint{policy=\"" + policy + "\"}, rematerialize, clean, partition";
    std::string first = After(*step, once);
    ASSERT_NE(first.find("@bwd"), std::string::npos) << first;
    EXPECT_EQ(After(*step, once + ", join, partition"), first) << seed << " " << policy;
    EXPECT_EQ(After(*step, once + ", join, clean, partition"), first) << seed << " " << policy;
    EXPECT_EQ(After(*step, once + ", clean, join, partition"), first) << seed << " " << policy;
  }
}

// Nothing that is marked to be computed again is saved.
TEST(Partition, SavesNothingThatIsComputedAgain) {
  int marked = 0;
  for (uint32_t seed = 0; seed < kSteps; ++seed) {
    Result<Module> module = ParseModule(RandomTraining(seed), "random", Ops());
    ASSERT_TRUE(module.ok());
    std::string policy = kPolicies[seed % std::size(kPolicies)];
    Result<Pipeline> pipeline = ParsePipeline(
        "clean, checkpoint{policy=\"" + policy + "\"}, rematerialize, partition", Passes());
    ASSERT_TRUE(RunPipeline(*module, *pipeline).ok());
    const Graph& forward = module->graphs[0];
    for (ValueId v : forward.values()) marked += forward[v].keep == Keep::kPreferRecompute;
    for (const Output& output : forward.outputs()) {
      if (output.role != OutputRole::kSaved) continue;
      NodeId producer = forward[output.value].producer;
      bool draws = producer && forward.op(producer).effect() == Effect::kRandom;
      EXPECT_TRUE(draws || forward[output.value].keep != Keep::kPreferRecompute)
          << seed << " " << output.label;
    }
  }
  EXPECT_GT(marked, static_cast<int>(kSteps));
}

}  // namespace
}  // namespace heddle
