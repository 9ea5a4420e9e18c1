// Automatic plans give the loss and gradients of the whole graph on ranks, in f64.
#include <ATen/Parallel.h>

#include "heddle/search/placement/auto_plan.h"
#include "test/parallel/ranks.h"

namespace heddle {
namespace {

struct Case {
  const char* family;
  const char* flavor;
  const char* mesh;
};

run::Model MakeSmall(run::ModelConfig config, int64_t batch, int64_t seq_len) {
  at::set_num_threads(1);
  // Two layers are enough to decide. The model with 300 million parameters gets fewer experts, too.
  config.n_layers = std::min<int64_t>(config.n_layers, 2);
  if (config.moe.experts > 16) {
    config.moe.experts = 8;
    config.moe.top_k = 3;
  }
  return *run::MakeModel(config, {.batch = batch, .seq_len = seq_len},
                         {DType::kF64, run::AttentionKind::kFlash, run::Target::kCpu});
}

// Runs the cheapest plan, and the cheapest with half the memory or the minimum: small models are
// otherwise not split at all.
void ExpectFoundPlansRun(const run::Model& model, std::string_view mesh) {
  Module whole = *run::CaptureModel(model);
  compile::Plan plan =
      *compile::ParsePlan(fmt::format("heddle plan 1\nmesh [{}]\nauto\n", mesh), "plan");
  price::CostModel costs = *price::CostModel::Make(*price::LoadCluster("h100-8x"), {});
  Result<search::AutoPlanner> planner = search::AutoPlanner::Make(
      whole, plan, costs, search::WorkLimit(search::WorkAmount::Work(15)));
  ASSERT_TRUE(planner.ok()) << Format(planner.diagnostics());
  std::vector<at::Tensor> inputs = InputsOf(model, whole);
  Result<search::AutoPlan> free = planner->Solve({.memory = search::MemoryLimit{GiB(64), true}});
  ASSERT_TRUE(free.ok()) << Format(free.diagnostics());
  int tried = 0;
  for (int64_t eighths : {4, 5, 6, 7, 8}) {
    // One plan with less memory is enough.
    if (tried > 0 && eighths < 8) continue;
    search::MemoryLimit limit{{free->memory.value * eighths / 8}, true};
    Result<search::AutoPlan> found = planner->Find({.memory = limit});
    if (!found.ok() && eighths < 8) {
      ASSERT_EQ(found.diagnostics()[0].kind, Diag::kInfeasible) << Format(found.diagnostics());
      continue;
    }
    ASSERT_TRUE(found.ok()) << Format(found.diagnostics());
    ++tried;
    SCOPED_TRACE(fmt::format("in {}:\n{}", Format(limit.bytes), compile::FormatPlan(found->plan)));
    EXPECT_LE(found->memory, limit.bytes);
    Module local = Parallelized(whole, found->plan);
    if (testing::Test::HasFatalFailure()) return;
    ExpectTheWholeGraphsOutputs(whole, local, inputs);
  }
}

class FoundPlans : public testing::TestWithParam<Case> {};

TEST_P(FoundPlans, GiveTheLossAndGradientsOfTheWholeGraph) {
  const Case& one = GetParam();
  ExpectFoundPlansRun(MakeSmall(*run::FindModel(one.family, one.flavor), 8, 16), one.mesh);
}

std::vector<Case> Cases() {
  std::vector<Case> out;
  for (auto [family, flavor] :
       {std::pair("llama3", "debugmodel"), std::pair("qwen3", "debugmodel"),
        std::pair("qwen3", "debugmodel_moe"), std::pair("deepseek_v3", "debugmodel")}) {
    for (const char* mesh : {"a=8", "a=4, b=2"}) out.push_back({family, flavor, mesh});
  }
  return out;
}
INSTANTIATE_TEST_SUITE_P(All, FoundPlans, testing::ValuesIn(Cases()), [](const auto& info) {
  int axes = static_cast<int>(std::ranges::count(std::string_view(info.param.mesh), '='));
  return fmt::format("{}_{}_{}d", info.param.family, info.param.flavor, axes);
});

// Ranks divide no size: three ranks for heads; positions, vocabulary and hidden units for none.
TEST(UnevenFoundPlans, GiveTheLossAndGradientsOfTheWholeGraph) {
  run::ModelConfig config = *run::FindModel("llama3", "debugmodel");
  config.n_layers = 2;
  config.dim = 96;
  config.n_heads = 6;
  config.n_kv_heads = 3;
  config.head_dim = 16;
  config.ffn_dim = 100;
  config.vocab_size = 61;
  for (const char* mesh : {"a=8", "a=2, b=3"}) ExpectFoundPlansRun(MakeSmall(config, 3, 13), mesh);
}

}  // namespace
}  // namespace heddle
