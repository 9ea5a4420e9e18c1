// Tests plans of captured models: numbers of collectives, a single rank, options, deterministic
// text, and partitioning twice.
#include <ATen/Parallel.h>
#include <ATen/ops/mul.h>

#include "heddle/compile/manager/manager.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/compile/plan/presets/presets.h"
#include "heddle/core/analysis/stats.h"
#include "heddle/core/ir/text/print.h"
#include "test/parallel/ranks.h"

namespace heddle {
namespace {

run::Model MakeNamed(const char* family, const char* flavor, const run::BatchConfig& batch,
                     DType compute, int64_t layers = 0) {
  at::set_num_threads(1);
  run::ModelConfig config = *run::FindModel(family, flavor);
  if (layers > 0) config.n_layers = layers;
  config.moe.experts = std::min<int64_t>(config.moe.experts, 64);
  return *run::MakeModel(config, batch, {compute, run::AttentionKind::kFlash, run::Target::kCpu});
}

Module Captured(const run::Model& model) { return *run::CaptureModel(model); }

Module Placed(const run::Model& model, const Module& whole, std::vector<MeshAxis> mesh,
              const compile::PresetOptions& preset) {
  return Parallelized(whole, *compile::MakePlan(whole.graphs[0], Mesh(std::move(mesh)),
                                                model.config.family->rules(), preset));
}
Module Placed(const run::Model& model, std::vector<MeshAxis> mesh,
              const compile::PresetOptions& preset) {
  return Placed(model, Captured(model), std::move(mesh), preset);
}

// Returns the number of launches by `kind over why phase`.
std::map<std::string, int64_t> Counts(const Module& module) {
  std::map<std::string, int64_t> counts;
  for (const CollectiveStats& c : CountCollectives(module, module.graphs[0]))
    counts[fmt::format("{} {} {} {}", c.kind, c.over, c.why, c.phase)] = c.count;
  return counts;
}

TEST(Plans, CollectivesOfLlama3With8BOn8x8) {
  run::Model model = MakeNamed("llama3", "8B", {.batch = 8, .seq_len = 8192}, DType::kBF16);
  Module whole = Captured(model);
  Module local =
      Placed(model, whole, {{"dp", 8}, {"tp", 8}}, {.axes = {{"shard", "dp"}, {"tensor", "tp"}}});
  // Two gathers and two scatters per block and direction for 32 blocks, one for the embedding, one
  // for the output.
  std::map<std::string, int64_t> expected = {
      {"all_gather dp unshard fwd", 291},
      {"reduce_scatter dp grad bwd", 291},
      {"all_gather tp tensor fwd", 65},
      {"reduce_scatter tp tensor fwd", 65},
      {"all_gather tp tensor bwd", 65},
      {"reduce_scatter tp tensor bwd", 65},
      // Norm weights: two per block, and one at the end.
      {"all_reduce tp tensor bwd", 65},
      // Maximum and sum of the logits, the loss itself, and one sum in backward.
      {"all_reduce tp loss fwd", 2},
      // The number of tokens whose label counts, and the loss.
      {"all_reduce dp loss fwd", 1},
      {"all_reduce dp,tp loss fwd", 1},
      {"all_reduce tp loss bwd", 1}};
  EXPECT_EQ(Counts(local), expected);

  Module replicated = Placed(model, whole, {{"dp", 8}, {"tp", 8}},
                             {.axes = {{"shard", "dp"}, {"tensor", "tp"}},
                              .sequence_parallel = false,
                              .split_loss = false});
  expected = {{"all_gather dp unshard fwd", 291}, {"reduce_scatter dp grad bwd", 291},
              {"all_reduce tp tensor fwd", 65},   {"all_reduce tp tensor bwd", 65},
              {"all_gather tp tensor fwd", 1},    {"all_reduce dp loss fwd", 2}};
  EXPECT_EQ(Counts(replicated), expected);
}

std::vector<std::string> SavedBy(const Graph& graph) {
  std::vector<std::string> saved;
  for (const Output& output : graph.outputs()) {
    if (output.role == OutputRole::kSaved) saved.push_back(output.label);
  }
  return saved;
}

// Partitioning a plan twice must not gather values again that the first partition saved.
TEST(Plans, PartitionedTwiceGatherAndSaveTheSame) {
  run::Model model = MakeNamed("llama3", "8B", {.batch = 16, .seq_len = 8192}, DType::kBF16);
  Module local =
      Placed(model, {{"dp", 16}, {"tp", 8}}, {.axes = {{"shard", "dp"}, {"tensor", "tp"}}});
  std::map<std::string, int64_t> joint = Counts(local);
  auto run = [&](std::string_view passes) {
    Result<compile::RunReport> report =
        compile::RunPipeline(local, *compile::ParsePipeline(passes, compile::Passes()));
    ASSERT_TRUE(report.ok()) << Format(report.diagnostics());
  };
  run("clean, checkpoint{policy=selective}, rematerialize, reshard-after-forward, dce, partition");
  ASSERT_EQ(local.graphs.size(), 2U);
  std::map<std::string, int64_t> forward = Counts(local);
  std::vector<std::string> saved = SavedBy(local.graphs[0]);
  std::string text = Print(local);
  // Forward gathers what it gathered as a part of the step: 291 weights and 65 activations.
  EXPECT_EQ(forward["all_gather dp unshard fwd"] + forward["all_gather tp tensor fwd"], 356);
  EXPECT_EQ(forward["all_gather dp unshard fwd"], joint["all_gather dp unshard fwd"]);
  EXPECT_EQ(forward["all_gather tp tensor fwd"], joint["all_gather tp tensor fwd"]);
  EXPECT_GT(saved.size(), 100U);
  for (const char* again : {"join, partition", "join, clean, partition"}) {
    run(again);
    EXPECT_EQ(Counts(local), forward);
    EXPECT_EQ(SavedBy(local.graphs[0]), saved);
    EXPECT_EQ(Print(local), text);
  }
}

// Returns the text without its header.
std::string Body(const Module& module) {
  std::string text = Print(module);
  return text.substr(text.find("graph @"));
}

TEST(Plans, OneRankChangesNothing) {
  for (auto [family, flavor] : {std::pair("llama3", "debugmodel"),
                                {"qwen3", "debugmodel"},
                                {"qwen3", "debugmodel_moe"},
                                {"deepseek_v3", "debugmodel"}}) {
    run::Model model = MakeNamed(family, flavor, {.batch = 2, .seq_len = 16}, DType::kBF16, 2);
    Module whole = Captured(model);
    Module local = Placed(model, whole, {{"rep", 1}, {"dp", 1}, {"tp", 1}},
                          {.axes = {{"replicate", "rep"}, {"shard", "dp"}, {"tensor", "tp"}}});
    EXPECT_EQ(Body(local), Body(whole)) << family << " " << flavor;
  }
}

TEST(Plans, GiveTheSameTextEveryTime) {
  run::Model model =
      MakeNamed("deepseek_v3", "debugmodel", {.batch = 4, .seq_len = 16}, DType::kBF16, 2);
  Module whole = Captured(model);
  compile::PresetOptions preset{.axes = {{"replicate", "rep"}, {"shard", "dp"}, {"tensor", "tp"}}};
  std::string first = Print(Placed(model, whole, {{"rep", 2}, {"dp", 2}, {"tp", 2}}, preset));
  EXPECT_EQ(Print(Placed(model, whole, {{"rep", 2}, {"dp", 2}, {"tp", 2}}, preset)), first);
  // The text of a plan contains the whole plan.
  compile::Plan plan = *compile::MakePlan(whole.graphs[0], Mesh({{"rep", 2}, {"dp", 2}, {"tp", 2}}),
                                          model.config.family->rules(), preset);
  Result<compile::Plan> read = compile::ParsePlan(compile::FormatPlan(plan), "plan");
  ASSERT_TRUE(read.ok()) << Format(read.diagnostics());
  EXPECT_EQ(compile::FormatPlan(*read), compile::FormatPlan(plan));
}

// Neither the graph nor the time of planning depends on the number of ranks.
TEST(Plans, AreAsLongForManyRanksAsForFew) {
  run::Model few = MakeNamed("llama3", "8B", {.batch = 2, .seq_len = 512}, DType::kBF16);
  run::Model many = MakeNamed("llama3", "8B", {.batch = 4096, .seq_len = 512}, DType::kBF16);
  compile::PresetOptions preset{.axes = {{"shard", "dp"}, {"tensor", "tp"}}};
  EXPECT_EQ(Placed(few, {{"dp", 2}, {"tp", 2}}, preset).graphs[0].node_count(),
            Placed(many, {{"dp", 4096}, {"tp", 8}}, preset).graphs[0].node_count());
}

TEST(Plans, CarryTheOptimizer) {
  run::Model model = MakeNamed("llama3", "debugmodel", {.batch = 4, .seq_len = 8}, DType::kF64, 1);
  Module whole = *run::CaptureModel(model, run::OptimizerOptions());
  std::vector<at::Tensor> inputs = InputsOf(model, whole);
  ExpectTheWholeGraphsOutputs(
      whole,
      Placed(model, whole, {{"dp", 2}, {"tp", 2}}, {.axes = {{"shard", "dp"}, {"tensor", "tp"}}}),
      inputs);
  ExpectTheWholeGraphsOutputs(whole,
                              Placed(model, whole, {{"rep", 2}, {"dp", 2}},
                                     {.axes = {{"replicate", "rep"}, {"shard", "dp"}}}),
                              inputs);
}

TEST(Plans, OrdersAndTypesOfReductionsGiveTheSameGradients) {
  run::Model model = MakeNamed("qwen3", "debugmodel", {.batch = 4, .seq_len = 8}, DType::kF64, 1);
  Module whole = Captured(model);
  std::vector<at::Tensor> inputs = InputsOf(model, whole);
  compile::Plan plan = *compile::MakePlan(
      whole.graphs[0], Mesh({{"rep", 2}, {"dp", 2}, {"tp", 2}}), model.config.family->rules(),
      {.axes = {{"replicate", "rep"}, {"shard", "dp"}, {"tensor", "tp"}}});
  plan.wide_tensor_grads = true;
  ExpectTheWholeGraphsOutputs(whole, Parallelized(whole, plan, true), inputs);
}

// Collectives divide f32 gradients. Gradients in f64 and f16 are divided by separate ops.
TEST(Plans, AveragesAndFactorsDivideGradients) {
  for (auto [dtype, tolerance] : {std::pair(DType::kF64, 1e-9), std::pair(DType::kF32, 1e-4)}) {
    run::Model model = MakeNamed("qwen3", "debugmodel", {.batch = 4, .seq_len = 8}, dtype, 1);
    Module whole = Captured(model);
    std::vector<at::Tensor> inputs = InputsOf(model, whole);
    std::vector<at::Tensor> expected = OutputsOf(whole, inputs);
    compile::Plan plan = *compile::MakePlan(
        whole.graphs[0], Mesh({{"rep", 2}, {"dp", 2}, {"tp", 2}}), model.config.family->rules(),
        {.axes = {{"replicate", "rep"}, {"shard", "dp"}, {"tensor", "tp"}}});
    for (auto [average, wide, divisor] : {std::tuple(true, false, 4.0),
                                          {true, true, 4.0},
                                          {false, false, 3.0},
                                          {false, true, 2.0}}) {
      plan.average = average;
      plan.grad_divisor = average ? 1.0 : divisor;
      plan.wide_tensor_grads = wide;
      std::vector<at::Tensor> got = OutputsOf(Parallelized(whole, plan), inputs);
      ASSERT_EQ(got.size(), expected.size());
      EXPECT_LE(RelativeDifference(got[0], expected[0]), tolerance);
      for (size_t i = 1; i < got.size(); ++i)
        EXPECT_LE(RelativeDifference(at::mul(got[i], divisor), expected[i]), tolerance)
            << Name(dtype) << average << wide << i;
    }
  }
}

}  // namespace
}  // namespace heddle
