// Compares the predicted memory of a graph with the bytes that a run allocates, node by node. Also
// checks that memory decisions do not change bits.
#include <map>
#include <optional>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>

#include "heddle/compile/manager/manager.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/compile/plan/presets/presets.h"
#include "heddle/core/analysis/memory.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/ops.h"
#include "heddle/run/runtime/rank_program.h"
#include "heddle/run/runtime/shards.h"
#include "heddle/search/memory/memory_search.h"
#include "test/checks/narrow_model.h"
#include "test/parallel/counting_allocator.h"
#include "test/parallel/ranks.h"

namespace heddle {
namespace {

// Returns the predicted bytes in device and host memory at each node, without inputs, which the
// caller owns.
std::vector<int64_t> Predicted(const Graph& graph) {
  Liveness liveness(graph);
  std::vector<int64_t> live(graph.node_count());
  for (Space space : {Space::kDevice, Space::kHost}) {
    MemoryTimeline timeline = ComputeMemoryTimeline(graph, liveness, space);
    for (size_t i = 0; i < live.size(); ++i) live[i] += (timeline.live[i] - timeline.inputs).value;
  }
  return live;
}

// Returns the outputs of each rank. Consumes `inputs_by_rank`, so that updates have exclusive
// storage. `at_most`: numbers of rows are dynamic, so the prediction is an upper bound.
std::vector<run::Tensors> ExpectThePredictedBytes(const Module& module,
                                                  const std::vector<run::Tensors>& inputs_by_rank,
                                                  bool at_most = false) {
  const Graph& graph = module.graphs[0];
  Result<run::RankProgram> program =
      run::RankProgram::Compile(module, graph, {.share_results = false});
  EXPECT_TRUE(program.ok()) << Format(program.diagnostics());
  if (!program.ok()) return {};
  std::vector<int64_t> predicted = Predicted(graph);
  int64_t before = CountingAllocator::live;
  int64_t wrong = 0;
  int64_t spared = 0;
  auto compare = [&](NodeId node, std::span<const run::Tensors>) {
    int64_t allocated = CountingAllocator::live - before;
    int64_t expected = predicted[node.index()] * module.mesh.ranks();
    spared += expected - allocated;
    if (allocated == expected || (at_most && allocated < expected) || ++wrong > 3) return;
    ADD_FAILURE() << PrintNode(module, graph, node) << "\nallocated " << allocated << ", predicted "
                  << expected;
  };
  Result<std::vector<run::Tensors>> outputs = program->Run(inputs_by_rank, compare);
  EXPECT_TRUE(outputs.ok()) << Format(outputs.diagnostics());
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(spared > 0, at_most);
  return outputs.ok() ? *std::move(outputs) : std::vector<run::Tensors>();
}

std::vector<run::Tensors> Split(const Module& local, const std::vector<at::Tensor>& inputs) {
  const Graph& graph = local.graphs[0];
  std::vector<run::Tensors> by_rank(static_cast<size_t>(local.mesh.ranks()));
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Placement& placement = graph.placements()[graph.inputs()[i].global.placement];
      by_rank[rank].push_back(
          run::ShardOf(inputs[i], placement, local.mesh, static_cast<int64_t>(rank)).clone());
    }
  }
  return by_rank;
}

struct DebugModel {
  const char* family;
  const char* flavor;
  DType compute;
};

std::string DebugName(const testing::TestParamInfo<DebugModel>& info) {
  return fmt::format("{}_{}_{}", info.param.family, info.param.flavor, Name(info.param.compute));
}

// A captured debug model, and the inputs of its step.
struct CapturedStep {
  run::Model model;
  Module whole;
  std::vector<at::Tensor> inputs;

  Module On(std::vector<MeshAxis> mesh) const {
    compile::Plan plan =
        *compile::MakePlan(whole.graphs[0], Mesh(std::move(mesh)), model.config.family->rules(),
                           {.axes = {{"shard", "dp"}, {"tensor", "tp"}}});
    return Parallelized(whole, plan);
  }
};

CapturedStep CaptureDebug(
    const DebugModel& debug, int64_t most_layers,
    const std::optional<run::OptimizerOptions>& optimizer = run::OptimizerOptions()) {
  run::ModelConfig config = *run::FindModel(debug.family, debug.flavor);
  int64_t layers = std::min(config.n_layers, most_layers);
  MakeNarrow(config);
  if (config.moe.experts == 0 && debug.compute != DType::kBF16) config.n_layers = layers;
  run::Model model =
      *run::MakeModel(config, {.batch = 4, .seq_len = 16},
                      {debug.compute, run::AttentionKind::kFlash, run::Target::kCpu});
  Module whole = *run::CaptureModel(model, optimizer);
  std::vector<at::Tensor> inputs = InputsOf(model, whole);
  return {std::move(model), std::move(whole), std::move(inputs)};
}

Module After(Module module, const std::string& pipeline) {
  Result<compile::RunReport> report =
      compile::RunPipeline(module, *compile::ParsePipeline(pipeline, compile::Passes()));
  EXPECT_TRUE(report.ok()) << pipeline << "\n" << Format(report.diagnostics());
  return module;
}

class ModelMemory : public testing::TestWithParam<DebugModel> {};

TEST_P(ModelMemory, IsWhatWasPredicted) {
  at::set_num_threads(1);
  CountingAllocator allocator;
  CapturedStep step = CaptureDebug(GetParam(), INT64_MAX);
  Module alone = step.whole;
  alone.view = View::kLocal;
  ExpectThePredictedBytes(alone, Split(alone, step.inputs));
  Module local = step.On({{"dp", 2}, {"tp", 2}});
  ExpectThePredictedBytes(local, Split(local, step.inputs));
  Module scheduled = After(local, "fsdp");
  ExpectThePredictedBytes(scheduled, Split(scheduled, step.inputs));
}

INSTANTIATE_TEST_SUITE_P(All, ModelMemory,
                         testing::Values(DebugModel{"llama3", "debugmodel", DType::kF32},
                                         DebugModel{"llama3", "debugmodel", DType::kBF16},
                                         DebugModel{"qwen3", "debugmodel", DType::kF32},
                                         DebugModel{"qwen3", "debugmodel_moe", DType::kBF16},
                                         DebugModel{"deepseek_v3", "debugmodel", DType::kBF16},
                                         DebugModel{"mlp", "small", DType::kF32}),
                         DebugName);

// Ranks that share experts keep rows in buffers of the maximum size, whose memory is predicted
// exactly. Without buffers, they need at most that.
TEST(ExpertMemory, IsWhatWasPredictedOrLess) {
  at::set_num_threads(1);
  CountingAllocator allocator;
  for (const DebugModel& debug : {DebugModel{"deepseek_v3", "debugmodel", DType::kF32},
                                  DebugModel{"qwen3", "debugmodel_moe", DType::kF32}}) {
    CapturedStep step = CaptureDebug(debug, 2);
    compile::Plan plan =
        *compile::MakePlan(step.whole.graphs[0], Mesh({{"mod", 2}, {"in", 2}, {"tp", 2}}),
                           step.model.config.family->rules(),
                           {.axes = {{"shard", "mod"}, {"tensor", "tp"}},
                            .inner_shard = "in",
                            .experts = {"in", "tp"}});
    for (bool exact : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", debug.family, exact ? "exact" : "bound"));
      Module local = step.whole;
      plan.decisions.expert_buffers = !exact;
      Result<compile::CompileReport> report = compile::Compile(local, plan, {.pipeline = ""});
      ASSERT_TRUE(report.ok()) << Format(report.diagnostics());
      ExpectThePredictedBytes(local, Split(local, step.inputs), exact);
      Module scheduled = After(local, "fsdp");
      ExpectThePredictedBytes(scheduled, Split(scheduled, step.inputs), exact);
    }
  }
}

// Returns the graphs that each policy makes from a local graph, by name; first the graph without
// decisions.
std::vector<std::pair<std::string, Module>> Decided(const Module& local) {
  std::vector<std::pair<std::string, Module>> decided{{"", After(local, "clean, fsdp")}};
  for (const char* policy : {"policy=full", "policy=\"layers:2\"", "policy=selective",
                             "policy=min-cut", "policy=selective,kept=offload"}) {
    std::string text = fmt::format("clean, checkpoint{{{}}}, rematerialize, offload, fsdp", policy);
    decided.emplace_back(text, After(local, text));
  }
  price::CostModel model = *price::CostModel::Make(*price::LoadCluster("h100-8x"), {});
  compile::Pipeline fsdp = *compile::ParsePipeline("fsdp", compile::Passes());
  Module clean = After(local, "clean");
  auto search = *search::MemorySearch::Make(clean, fsdp, model);
  std::vector<search::MemoryChoice> curve = *search->Sweep();
  EXPECT_GT(curve.size(), 1U);
  Bytes most = curve.front().peak;
  Bytes least = curve.back().peak;
  for (int64_t part : {0, 1, 2}) {
    search::MemoryChoice choice =
        *search->FindWithin(least + Bytes{(most - least).value * part / 3});
    decided.emplace_back(
        fmt::format("{} third of a budget: {}", part, choice.policy),
        After(search->trials().Marked(choice.marks), "rematerialize, offload, fsdp"));
  }
  return decided;
}

class PolicyMemory : public testing::TestWithParam<DebugModel> {};

TEST_P(PolicyMemory, IsWhatWasPredictedAndNoBitIsAnother) {
  at::set_num_threads(1);
  CountingAllocator allocator;
  CapturedStep step = CaptureDebug(GetParam(), 2);
  Module local = step.On({{"dp", 4}, {"tp", 2}});
  std::vector<run::Tensors> expected;
  std::set<Bytes> kept;
  for (const auto& [name, module] : Decided(local)) {
    SCOPED_TRACE(name);
    const Graph& graph = module.graphs[0];
    kept.insert(KeptForBackward(graph));
    std::vector<run::Tensors> outputs = ExpectThePredictedBytes(module, Split(module, step.inputs));
    if (expected.empty()) expected = outputs;
    ASSERT_EQ(outputs.size(), expected.size());
    for (size_t rank = 0; rank < outputs.size(); ++rank) {
      for (size_t i = 0; i < outputs[rank].size(); ++i)
        EXPECT_TRUE(outputs[rank][i].equal(expected[rank][i]))
            << "rank " << rank << ", output " << graph.outputs()[i].label;
    }
  }
  // The policies kept some values.
  EXPECT_GT(kept.size(), 4U);
}

INSTANTIATE_TEST_SUITE_P(All, PolicyMemory,
                         testing::Values(DebugModel{"llama3", "debugmodel", DType::kF32},
                                         DebugModel{"qwen3", "debugmodel", DType::kF32},
                                         DebugModel{"qwen3", "debugmodel_moe", DType::kF32},
                                         DebugModel{"deepseek_v3", "debugmodel", DType::kF32}),
                         DebugName);

// Summing in chunks rounds differently; nothing else changes.
class LossInChunks : public testing::TestWithParam<DebugModel> {};

TEST_P(LossInChunks, IsTheWholeLossUpToRounding) {
  at::set_num_threads(1);
  // Without AdamW, whose first step depends only on the signs of gradients.
  CapturedStep step = CaptureDebug(GetParam(), 2, std::nullopt);
  std::vector<at::Tensor> expected = OutputsOf(step.whole, step.inputs);
  Module local = step.On({{"dp", 4}, {"tp", 2}});
  // A rank has 16 rows; chunks of 5 leave a remainder.
  for (const char* passes :
       {"chunk-loss{rows=5}, rematerialize, fsdp",
        "clean, chunk-loss{rows=8}, checkpoint{policy=full}, rematerialize, fsdp"}) {
    SCOPED_TRACE(passes);
    Module chunked = local;
    Result<compile::RunReport> report =
        compile::RunPipeline(chunked, *compile::ParsePipeline(passes, compile::Passes()));
    ASSERT_TRUE(report.ok()) << Format(report.diagnostics());
    bool split = std::ranges::any_of(report->passes, [](const compile::PassRecord& pass) {
      return pass.pass.starts_with("chunk-loss") && pass.changed == Changed::kYes;
    });
    EXPECT_TRUE(split);
    std::vector<at::Tensor> outputs = OutputsOf(chunked, step.inputs);
    ASSERT_EQ(outputs.size(), expected.size());
    double most = GetParam().compute == DType::kF64 ? 1e-9 : 1e-4;
    for (size_t i = 0; i < outputs.size(); ++i)
      EXPECT_LE(RelativeDifference(outputs[i], expected[i]), most)
          << PrintOutput(chunked, chunked.graphs[0], chunked.graphs[0].outputs()[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(All, LossInChunks,
                         testing::Values(DebugModel{"llama3", "debugmodel", DType::kF32},
                                         DebugModel{"llama3", "debugmodel", DType::kF64},
                                         DebugModel{"qwen3", "debugmodel", DType::kF32},
                                         DebugModel{"qwen3", "debugmodel_moe", DType::kF32},
                                         DebugModel{"deepseek_v3", "debugmodel", DType::kF32}),
                         DebugName);

// Views, arithmetic, launches of several tensors, host memory and updates, all over square
// matrices, so that values are interchangeable.
std::string RandomText(uint32_t seed) {
  std::mt19937 random(seed);
  auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  std::vector<std::string> values{"x"};
  std::vector<std::string> flying;
  std::vector<std::string> hosts;
  std::string body;
  auto any = [&] { return "%" + values[pick(values.size())]; };
  auto take = [&](std::vector<std::string>& list) {
    size_t at = pick(list.size());
    std::string name = list[at];
    list.erase(list.begin() + static_cast<ptrdiff_t>(at));
    return name;
  };
  for (size_t i = 0; i < 60; ++i) {
    std::string n = fmt::format("v{}", i);
    switch (pick(9)) {
      case 0: body += fmt::format("  %{} = aten.t({})\n", n, any()); break;
      case 1: body += fmt::format("  %{} = aten.mm({}, {})\n", n, any(), any()); break;
      case 2: body += fmt::format("  %{} = aten.exp({})\n", n, any()); break;
      case 3: {
        body += fmt::format("  %{}a, %{}b = aten.split.Tensor({}, split_size=4)\n", n, n, any());
        body += fmt::format("  %{} = aten.cat([%{}b, %{}a])\n", n, n, n);
        break;
      }
      case 4:
        body +=
            fmt::format("  %{}! = comm.all_reduce({}, {}, over=[dp], why=grad)\n", n, any(), any());
        flying.push_back(n);
        continue;
      case 5:
        if (flying.empty()) continue;
        n = take(flying);
        body += fmt::format("  %{0}, %{0}x = comm.wait(%{0}!)\n", n);
        values.push_back(n + "x");
        break;
      case 6:
        body += fmt::format("  %{0}! = mem.offload({1})\n  %{0}h = comm.wait(%{0}!)\n", n, any());
        hosts.push_back(n);
        continue;
      case 7:
        if (hosts.empty()) continue;
        n = take(hosts);
        body += fmt::format("  %{0}r! = mem.reload(%{0}h)\n  %{0} = comm.wait(%{0}r!)\n", n);
        break;
      default:
        body += fmt::format(
            "  %{0}g! = comm.reduce_scatter({1}, over=[dp], why=grad)\n  %{0}p = "
            "comm.wait(%{0}g!)\n  %{0}w! = comm.all_gather(%{0}p, over=[dp], why=unshard)\n"
            "  %{0} = comm.wait(%{0}w!)\n",
            n, any());
    }
    values.push_back(n);
  }
  for (const std::string& n : flying) body += fmt::format("  %{0}, %{0}x = comm.wait(%{0}!)\n", n);
  body += fmt::format(
      "  %w2, %g2, %m2, %s2 = aten._fused_adamw.tensor_lr([%w], [{}], [%m], [%s], [], [%step], "
      "%lr, "
      "beta1=0.9, beta2=0.95, weight_decay=0.1, eps=1e-8, amsgrad=false, maximize=false)\n",
      "%" + values.back());
  return fmt::format(
      "heddle 1 local\nmesh [dp=2]\ngraph @g(%x: f32[8,8] batch, %w: f32[8,8] param 0 \"w\", %m: "
      "f32[8,8] opt 0 \"m\", %s: f32[8,8] opt 0 \"s\", %lr: host f64[] hyper \"lr\", %step: f32[] "
      "hyper \"step\") -> (metric {}, update %w -> %w2, update %m -> %m2, update %s -> %s2) "
      "{{\n{}}}\n",
      any(), body);
}

TEST(RandomGraphs, AllocateWhatWasPredicted) {
  at::set_num_threads(1);
  CountingAllocator allocator;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::string text = RandomText(seed);
    Result<Module> module = ParseModule(text, "random", Ops());
    ASSERT_TRUE(module.ok()) << text << Format(module.diagnostics());
    std::vector<at::Tensor> inputs;
    for (const Input& input : module->graphs[0].inputs()) {
      bool matrix = module->graphs[0].types().rank(module->graphs[0].type(input.value)) == 2;
      inputs.push_back(matrix ? at::full({8, 8}, 0.01, at::kFloat)
                              : at::full({}, 1.0, input.label == "lr" ? at::kDouble : at::kFloat));
    }
    ExpectThePredictedBytes(*module, Split(*module, inputs));
    if (HasFailure()) FAIL() << "seed " << seed << "\n" << text;
  }
}

}  // namespace
}  // namespace heddle
