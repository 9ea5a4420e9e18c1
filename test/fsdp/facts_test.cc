// Known costs of FSDP's schedule: launches by unit and phase, and memory to the byte.
#include <gtest/gtest.h>

#include "heddle/compile/compile.h"
#include "heddle/compile/plan/presets/presets.h"
#include "heddle/core/analysis/memory.h"
#include "heddle/core/ops/ops.h"
#include "heddle/run/models/model.h"

namespace heddle {
namespace {

Module Step(const char* family, const char* flavor, int64_t ranks, const std::string& pipeline,
            int64_t seq_len = 16) {
  run::ModelConfig config = *run::FindModel(family, flavor);
  run::Model model = *run::MakeModel(config, {.batch = ranks, .seq_len = seq_len},
                                     {DType::kBF16, run::AttentionKind::kFlash, run::Target::kCpu});
  Module module = *run::CaptureModel(model, std::nullopt);
  compile::Plan plan = *compile::MakePlan(module.graphs[0], Mesh({{"dp", ranks}}),
                                          config.family->rules(), {.axes = {{"shard", "dp"}}});
  Result<compile::CompileReport> report = compile::Compile(module, plan, {.pipeline = pipeline});
  EXPECT_TRUE(report.ok()) << Format(report.diagnostics());
  return module;
}

std::string Pipeline(std::string_view policy) {
  return fmt::format(
      "clean, reshard-after-forward{{policy={}}}, dce, bucket-by-unit, separate-communicators, "
      "prefetch",
      policy);
}

// Returns the units of launches of one kind in one phase, in order.
std::vector<std::string> UnitsOf(const Graph& graph, OpId op, Why why, Phase phase) {
  std::vector<std::string> units;
  for (NodeId id : graph.nodes()) {
    if (graph[id].op != op || graph[id].phase != phase) continue;
    if (std::get<Why>(*graph.attrs(id).Find("why")) != why) continue;
    units.push_back(EachString(*graph.attrs(id).Find("unit"), 0));
  }
  return units;
}
std::vector<std::string> Gathers(const Graph& graph, Phase phase) {
  return UnitsOf(graph, op::comm_all_gather, Why::kUnshard, phase);
}

TEST(Launches, OfLlama3) {
  std::vector<std::string> forward{"tok_embeddings"};
  for (int i = 0; i < 6; ++i) forward.push_back(fmt::format("layers.{}", i));
  forward.emplace_back("norm+output");
  std::vector<std::string> reversed(forward.rbegin(), forward.rend());
  for (std::string_view policy : {"always", "default", "never"}) {
    Module module = Step("llama3", "debugmodel", 4, Pipeline(policy));
    const Graph& graph = module.graphs[0];
    // Backward does not read the embedding, and kept weights are not gathered again.
    std::vector<std::string> backward(reversed.begin(), reversed.end() - 1);
    if (policy == "default") backward.erase(backward.begin());
    if (policy == "never") backward.clear();
    EXPECT_EQ(Gathers(graph, Phase::kForward), forward) << policy;
    EXPECT_EQ(Gathers(graph, Phase::kBackward), backward) << policy;
    EXPECT_EQ(UnitsOf(graph, op::comm_reduce_scatter, Why::kGrad, Phase::kBackward), reversed)
        << policy;
  }
}

TEST(Launches, OfDeepSeek) {
  Module module = Step("deepseek_v3", "debugmodel", 4, Pipeline("always"));
  EXPECT_EQ(Gathers(module.graphs[0], Phase::kForward).size(), 8);
  EXPECT_EQ(Gathers(module.graphs[0], Phase::kBackward).size(), 7);
}

// One unit contains the tied weight, which forward reads first and last.
TEST(Launches, OfQwen3WithItsTiedWeight) {
  Module module = Step("qwen3", "debugmodel", 4, Pipeline("always"));
  std::vector<std::string> forward = Gathers(module.graphs[0], Phase::kForward);
  std::vector<std::string> backward = Gathers(module.graphs[0], Phase::kBackward);
  ASSERT_EQ(forward.size(), 9);
  EXPECT_EQ(forward[0], "tok_embeddings+norm+output");
  ASSERT_EQ(backward.size(), 9);
  EXPECT_EQ(backward[0], "tok_embeddings+norm+output");
  EXPECT_EQ(backward[8], "layers.0");
}

int64_t PeakOf(const Module& module) {
  const Graph& graph = module.graphs[0];
  return ComputeMemoryTimeline(graph, Liveness(graph)).peak.value;
}

TEST(Memory, OfLlama3At8BOn64Ranks) {
  Module always = Step("llama3", "8B", 64, Pipeline("always"), 8192);
  Module never = Step("llama3", "8B", 64, Pipeline("never"), 8192);
  int64_t by_default = PeakOf(Step("llama3", "8B", 64, Pipeline("default"), 8192));
  EXPECT_LT(PeakOf(always), by_default);
  EXPECT_LE(by_default, PeakOf(never));
  // Backward gathers the weights that are no longer saved.
  const Graph& graph = always.graphs[0];
  int64_t gathered = 0;
  for (NodeId id : graph.nodes()) {
    if (graph[id].op == op::comm_all_gather && graph[id].phase == Phase::kBackward)
      gathered += graph.types().bytes(graph.type(graph[id].first_result)).value;
  }
  EXPECT_EQ(PeakOf(never) - PeakOf(always), gathered);
}

TEST(Costs, OfEachPassAreMeasured) {
  run::ModelConfig config = *run::FindModel("llama3", "debugmodel");
  run::Model model = *run::MakeModel(config, {.batch = 4, .seq_len = 16},
                                     {DType::kBF16, run::AttentionKind::kFlash, run::Target::kCpu});
  Module module = *run::CaptureModel(model, std::nullopt);
  compile::Plan plan = *compile::MakePlan(module.graphs[0], Mesh({{"dp", 4}}),
                                          config.family->rules(), {.axes = {{"shard", "dp"}}});
  compile::CompileOptions options{.pipeline = "fsdp"};
  options.manager.measure = true;
  compile::CompileReport report = *compile::Compile(module, plan, options);
  for (size_t i = 0; i < report.first_after_lowering; ++i)
    EXPECT_EQ(report.passes[i].after.launches, 0);
  const compile::PassRecord* last = nullptr;
  for (size_t i = report.first_after_lowering; i < report.passes.size(); ++i) {
    const compile::PassRecord& record = report.passes[i];
    if (last != nullptr) {
      EXPECT_EQ(record.before.launches, last->after.launches) << record.pass;
      EXPECT_EQ(record.before.peak, last->after.peak) << record.pass;
    }
    if (record.pass == "bucket-by-unit") {
      // 8 units forward, 6 backward, 8 reductions, the loss, and the number of tokens.
      EXPECT_EQ(record.after.launches, 24);
      EXPECT_EQ(record.before.launches, 57 + 54 + 57 + 2);
    }
    last = &record;
  }
  EXPECT_EQ(last->pass, "prefetch");
  EXPECT_EQ(last->after.peak.value, PeakOf(module));
}

}  // namespace
}  // namespace heddle
