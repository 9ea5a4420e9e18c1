// Every model gives the loss and gradients of the whole graph on every usual mesh, in f64.
#include <ATen/Parallel.h>

#include "heddle/compile/manager/manager.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/compile/plan/presets/presets.h"
#include "heddle/core/ir/structural_hash.h"
#include "heddle/price/cost/cost_model.h"
#include "test/checks/narrow_model.h"
#include "test/parallel/ranks.h"

namespace heddle {
namespace {

struct ModelLayout {
  const char* name;
  std::vector<MeshAxis> mesh;
  compile::PresetOptions preset;
};

const std::vector<ModelLayout>& Layouts() {
  static const std::vector<ModelLayout> layouts = {
      {"fsdp4", {{"dp", 4}}, {.axes = {{"shard", "dp"}}}},
      {"ddp4", {{"dp", 4}}, {.axes = {{"replicate", "dp"}}}},
      {"hsdp2x2", {{"rep", 2}, {"dp", 2}}, {.axes = {{"replicate", "rep"}, {"shard", "dp"}}}},
      {"fsdp2_tp2", {{"dp", 2}, {"tp", 2}}, {.axes = {{"shard", "dp"}, {"tensor", "tp"}}}},
      {"fsdp2_tp2_replicated",
       {{"dp", 2}, {"tp", 2}},
       {.axes = {{"shard", "dp"}, {"tensor", "tp"}}, .sequence_parallel = false}},
      {"fsdp2_tp2_gathered_logits",
       {{"dp", 2}, {"tp", 2}},
       {.axes = {{"shard", "dp"}, {"tensor", "tp"}}, .split_loss = false}},
      {"tp4", {{"tp", 4}}, {.axes = {{"tensor", "tp"}}}},
      {"tp4_replicated_gathered",
       {{"tp", 4}},
       {.axes = {{"tensor", "tp"}}, .sequence_parallel = false, .split_loss = false}},
      {"hsdp2x2_tp2",
       {{"rep", 2}, {"dp", 2}, {"tp", 2}},
       {.axes = {{"replicate", "rep"}, {"shard", "dp"}, {"tensor", "tp"}}}},
      {"fsdp4_ep2",
       {{"mod", 2}, {"in", 2}},
       {.axes = {{"shard", "mod"}}, .inner_shard = "in", .experts = {"in"}}},
      {"fsdp4_ep4", {{"dp", 4}}, {.axes = {{"shard", "dp"}}, .experts = {"dp"}}},
      {"fsdp2_tp2_ep4",
       {{"dp", 2}, {"tp", 2}},
       {.axes = {{"shard", "dp"}, {"tensor", "tp"}}, .experts = {"dp", "tp"}}},
      {"fsdp4_tp2_ep4",
       {{"mod", 2}, {"in", 2}, {"tp", 2}},
       {.axes = {{"shard", "mod"}, {"tensor", "tp"}},
        .inner_shard = "in",
        .experts = {"in", "tp"}}},
      {"fsdp4_tp2_ep4_replicated",
       {{"mod", 2}, {"in", 2}, {"tp", 2}},
       {.axes = {{"shard", "mod"}, {"tensor", "tp"}},
        .sequence_parallel = false,
        .inner_shard = "in",
        .experts = {"in", "tp"}}},
      {"hsdp2x2_ep2",
       {{"rep", 2}, {"dp", 2}},
       {.axes = {{"replicate", "rep"}, {"shard", "dp"}}, .experts = {"dp"}}},
      // Tensor-parallel ranks split each expert.
      {"fsdp2_tp2_ep2_etp2",
       {{"dp", 2}, {"tp", 2}},
       {.axes = {{"shard", "dp"}, {"tensor", "tp"}}, .experts = {"dp"}}},
      // Three ranks divide neither the batch nor the weights.
      {"fsdp3", {{"dp", 3}}, {.axes = {{"shard", "dp"}}}},
  };
  return layouts;
}

struct Named {
  const char* name;
  const char* flavor;
};
constexpr Named kFamilies[] = {
    {"llama3", "debugmodel"},      {"qwen3", "debugmodel"},   {"qwen3", "debugmodel_moe"},
    {"deepseek_v3", "debugmodel"}, {"mixtral", "debugmodel"}, {"qwen2", "debugmodel"},
    {"olmo2", "debugmodel"},       {"gemma2", "debugmodel"},  {"gemma3", "debugmodel"},
    {"gpt2", "debugmodel"},        {"gpt_oss", "debugmodel"}, {"mlp", "small"}};

class ParallelModels : public testing::TestWithParam<std::tuple<Named, size_t>> {
 protected:
  // Whole on one mesh, which has an axis of each kind; narrow, with two layers, on the others. One
  // of the two has experts if the family has any. The model with 300 million parameters is never
  // whole.
  static run::Model MakeDebug(const Named& family, const ModelLayout& layout) {
    at::set_num_threads(1);
    run::ModelConfig config = *run::FindModel(family.name, family.flavor);
    bool whole = layout.name == std::string_view("hsdp2x2_tp2") && config.moe.experts <= 16;
    if (!whole) MakeNarrow(config);
    return *run::MakeModel(config, {.batch = 4, .seq_len = 12},
                           {DType::kF64, run::AttentionKind::kFastest, run::Target::kCpu});
  }
};
class ParallelExperts : public ParallelModels {};

TEST_P(ParallelModels, GiveTheLossAndGradientsOfTheWholeGraph) {
  auto [family, at] = GetParam();
  const ModelLayout& layout = Layouts()[at];
  run::Model model = MakeDebug(family, layout);
  Module whole = *run::CaptureModel(model);
  Result<compile::Plan> plan = compile::MakePlan(whole.graphs[0], Mesh(layout.mesh),
                                                 model.config.family->rules(), layout.preset);
  ASSERT_TRUE(plan.ok()) << Format(plan.diagnostics());
  Module local = Parallelized(whole, *plan);
  if (HasFatalFailure()) return;
  ExpectTheWholeGraphsOutputs(whole, local, InputsOf(model, whole));
}

// Three experts get all tokens: their rank gets most rows, others none.
TEST_P(ParallelExperts, GiveTheSameWhereFewExpertsGetEverything) {
  auto [family, at] = GetParam();
  const ModelLayout& layout = Layouts()[at];
  run::Model model = MakeDebug(family, layout);
  Module whole = *run::CaptureModel(model);
  compile::Plan plan = *compile::MakePlan(whole.graphs[0], Mesh(layout.mesh),
                                          model.config.family->rules(), layout.preset);
  Module local = Parallelized(whole, plan);
  if (HasFatalFailure()) return;
  std::vector<at::Tensor> inputs = InputsOf(model, whole);
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::string_view label = whole.graphs[0].inputs()[i].label;
    if (label.ends_with("expert_bias_E")) {
      inputs[i] = inputs[i].clone();
      inputs[i].narrow(0, 5, 3).fill_(100);
    } else if (label.ends_with("router.gate.weight") && !model.config.moe.bias) {
      // All experts have the same score for every token, so all tokens choose the same.
      inputs[i] = inputs[i].clone().zero_();
    }
  }
  ExpectTheWholeGraphsOutputs(whole, local, inputs);
}

// Tokens of a block in two chunks: sums round differently; nothing else changes. With two sequences
// per rank, chunks are sequences, and attention is chunked, too.
TEST(TokensInParts, GiveTheLossAndGradientsOfTheWholeGraph) {
  at::set_num_threads(1);
  for (const Named& family :
       {Named{"qwen3", "debugmodel_moe"}, Named{"deepseek_v3", "debugmodel"}}) {
    for (auto [layout, batch] : {std::pair("fsdp4_ep2", 8), std::pair("fsdp2_tp2_ep4", 2)}) {
      SCOPED_TRACE(fmt::format("{} {}", family.name, layout));
      run::ModelConfig config = *run::FindModel(family.name, family.flavor);
      config.n_layers = 2;
      config.moe.experts = 8;
      config.moe.top_k = 3;
      run::Model model =
          *run::MakeModel(config, {.batch = batch, .seq_len = 12},
                          {DType::kF64, run::AttentionKind::kFastest, run::Target::kCpu});
      Module whole = *run::CaptureModel(model);
      const ModelLayout& on =
          *std::ranges::find(Layouts(), std::string_view(layout), &ModelLayout::name);
      compile::Plan plan = *compile::MakePlan(whole.graphs[0], Mesh(on.mesh),
                                              model.config.family->rules(), on.preset);
      Module local = Parallelized(whole, plan);
      if (testing::Test::HasFatalFailure()) return;
      price::CostModel costs = *price::CostModel::Make(*price::LoadCluster("h100-8x"), {});
      compile::ManagerOptions manager;
      manager.costs = &costs;
      Result<compile::RunReport> report = compile::RunPipeline(
          local, *compile::ParsePipeline("chunk-tokens{parts=2}, fsdp", compile::Passes()),
          manager);
      ASSERT_TRUE(report.ok()) << Format(report.diagnostics());
      EXPECT_EQ(report->passes[0].changed, Changed::kYes);
      ExpectTheWholeGraphsOutputs(whole, local, InputsOf(model, whole));
    }
  }
}

// Ranks divide no size: three ranks for heads; positions, vocabulary and hidden units for none.
TEST(UnevenModels, GiveTheLossAndGradientsOfTheWholeGraph) {
  at::set_num_threads(1);
  for (const char* family : {"llama3", "qwen2", "qwen3", "gemma3", "gpt2"}) {
    run::ModelConfig config = *run::FindModel(family, "debugmodel");
    config.n_layers = 2;
    config.dim = 96;
    config.n_heads = 6;
    config.n_kv_heads = 3;
    config.head_dim = 16;
    config.ffn_dim = 100;
    config.vocab_size = 61;
    run::Model model =
        *run::MakeModel(config, {.batch = 3, .seq_len = 13},
                        {DType::kF64, run::AttentionKind::kFastest, run::Target::kCpu});
    Module whole = *run::CaptureModel(model);
    std::vector<at::Tensor> inputs = InputsOf(model, whole);
    for (bool sequence_parallel : {true, false}) {
      compile::Plan plan = *compile::MakePlan(
          whole.graphs[0], Mesh({{"dp", 2}, {"tp", 3}}), model.config.family->rules(),
          {.axes = {{"shard", "dp"}, {"tensor", "tp"}}, .sequence_parallel = sequence_parallel});
      Module local = Parallelized(whole, plan);
      if (testing::Test::HasFatalFailure()) return;
      SCOPED_TRACE(family);
      ExpectTheWholeGraphsOutputs(whole, local, inputs);
    }
  }
}

std::string NameOfLayout(const testing::TestParamInfo<ParallelModels::ParamType>& info) {
  auto [family, at] = info.param;
  return fmt::format("{}_{}_{}", family.name, family.flavor, Layouts()[at].name);
}

// Experts with biases cannot be split.
bool Fits(const Named& family, const ModelLayout& layout) {
  return !run::FindModel(family.name, family.flavor)->family->expert_biases ||
         !std::string_view(layout.name).ends_with("_etp2");
}

std::vector<ParallelModels::ParamType> AllLayouts() {
  std::vector<ParallelModels::ParamType> found;
  for (const Named& family : kFamilies) {
    for (size_t at = 0; at < Layouts().size(); ++at) {
      if (Fits(family, Layouts()[at])) found.emplace_back(family, at);
    }
  }
  return found;
}

// Returns the cases of models with experts, in layouts that distribute them.
std::vector<ParallelModels::ParamType> ExpertLayouts() {
  std::vector<ParallelModels::ParamType> found;
  for (const Named& family : kFamilies) {
    if (run::FindModel(family.name, family.flavor)->moe.experts == 0) continue;
    for (size_t at = 0; at < Layouts().size(); ++at) {
      if (!Layouts()[at].preset.experts.empty() && Fits(family, Layouts()[at]))
        found.emplace_back(family, at);
    }
  }
  return found;
}

INSTANTIATE_TEST_SUITE_P(All, ParallelModels, testing::ValuesIn(AllLayouts()), NameOfLayout);
INSTANTIATE_TEST_SUITE_P(All, ParallelExperts, testing::ValuesIn(ExpertLayouts()), NameOfLayout);

}  // namespace
}  // namespace heddle
