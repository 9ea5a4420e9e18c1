// The memory that a graph is said to need, against the bytes that running it allocates, node by node.
#include <map>
#include <random>

#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include "heddle/analysis/memory.h"
#include "heddle/ir/parse.h"
#include "heddle/ir/print.h"
#include "heddle/ops/ops.h"
#include "heddle/pass/manager.h"
#include "heddle/passes/passes.h"
#include "heddle/plan/presets/presets.h"
#include "heddle/runtime/shards.h"
#include "heddle/runtime/world.h"
#include "test/parallel/ranks.h"

namespace heddle {
namespace {

// Counts the bytes of tensors while it lives.
class CountingAllocator : public c10::Allocator {
 public:
  CountingAllocator() : before_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, kPriority); }
  ~CountingAllocator() override { c10::SetCPUAllocator(before_, kPriority); }

  c10::DataPtr allocate(size_t size) override {
    void* data = c10::alloc_cpu(size);
    if (data != nullptr) sizes[data] = size;
    live += static_cast<int64_t>(size);
    return {data, data, Free, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return Free; }
  void copy_data(void* to, const void* from, size_t size) const override {
    default_copy_data(to, from, size);
  }

  static inline int64_t live = 0;
  static inline std::map<void*, size_t> sizes;

 private:
  static constexpr uint8_t kPriority = 255;
  static void Free(void* data) {
    if (data == nullptr) return;
    live -= static_cast<int64_t>(sizes.extract(data).mapped());
    c10::free_cpu(data);
  }

  c10::Allocator* before_;
};

// What lives on the device and in host memory while each node runs, inputs left out: the caller holds them.
std::vector<int64_t> Predicted(const Graph& graph) {
  Liveness liveness(graph);
  std::vector<int64_t> live(graph.node_count());
  for (Space space : {Space::kDevice, Space::kHost}) {
    MemoryTimeline timeline = ComputeMemoryTimeline(graph, liveness, space);
    for (size_t i = 0; i < live.size(); ++i) live[i] += (timeline.live[i] - timeline.inputs).value;
  }
  return live;
}

// `inputs_by_rank` are consumed, so that updates write over nobody else's.
void ExpectThePredictedBytes(const Module& module, const std::vector<Tensors>& inputs_by_rank) {
  const Graph& graph = module.graphs[0];
  Result<World> world = World::Compile(module, graph, {.share_results = false});
  ASSERT_TRUE(world.ok()) << Format(world.diagnostics());
  std::vector<int64_t> predicted = Predicted(graph);
  int64_t before = CountingAllocator::live;
  int64_t wrong = 0;
  auto compare = [&](NodeId node, std::span<const Tensors>) {
    int64_t allocated = CountingAllocator::live - before;
    int64_t expected = predicted[node.index()] * module.mesh.ranks();
    if (allocated == expected || ++wrong > 3) return;
    ADD_FAILURE() << PrintNode(module, graph, node) << "\nallocated " << allocated << ", predicted "
                  << expected;
  };
  auto outputs = world->Run(inputs_by_rank, compare);
  ASSERT_TRUE(outputs.ok()) << Format(outputs.diagnostics());
  EXPECT_EQ(wrong, 0);
}

std::vector<Tensors> Split(const Module& local, const std::vector<at::Tensor>& inputs) {
  const Graph& graph = local.graphs[0];
  std::vector<Tensors> by_rank(static_cast<size_t>(local.mesh.ranks()));
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Placement& placement = graph.placements()[graph.inputs()[i].global.placement];
      by_rank[rank].push_back(
          ShardOf(inputs[i], placement, local.mesh, static_cast<int64_t>(rank)).clone());
    }
  }
  return by_rank;
}

struct Debug {
  const char* family;
  const char* flavor;
  DType compute;
};

class ModelMemory : public testing::TestWithParam<Debug> {};

TEST_P(ModelMemory, IsWhatWasPredicted) {
  at::set_num_threads(1);
  CountingAllocator allocator;
  ModelConfig config = *FindModel(GetParam().family, GetParam().flavor);
  if (config.moe.experts > 16) {
    config.n_layers = 2;
    config.moe.experts = 8;
    config.moe.top_k = 3;
  }
  Model model = *MakeModel(config, {.batch = 4, .seq_len = 16},
                           {GetParam().compute, AttentionKind::kFlash, Target::kCpu});
  Module whole = *CaptureModel(model, OptimizerOptions());
  std::vector<at::Tensor> inputs = InputsOf(model, whole);
  Module alone = whole;
  alone.view = View::kLocal;
  ExpectThePredictedBytes(alone, Split(alone, inputs));
  Plan plan = *MakePlan(whole.graphs[0], Mesh({{"dp", 2}, {"tp", 2}}), config.family->rules(),
                        {.axes = {{"shard", "dp"}, {"tensor", "tp"}}});
  Module local = Parallelized(whole, plan);
  ExpectThePredictedBytes(local, Split(local, inputs));
  for (const char* decided :
       {"", "checkpoint{policy=full}, rematerialize, ",
        "checkpoint{policy=\"layers:2\"}, rematerialize, ",
        "checkpoint{policy=selective}, rematerialize, ",
        "checkpoint{policy=min-cut}, rematerialize, ",
        "checkpoint{policy=selective,kept=offload}, rematerialize, offload, "}) {
    SCOPED_TRACE(decided);
    Module scheduled = local;
    Result<RunReport> report =
        RunPipeline(scheduled, *ParsePipeline(fmt::format("clean, {}fsdp", decided), Passes()));
    ASSERT_TRUE(report.ok()) << Format(report.diagnostics());
    ExpectThePredictedBytes(scheduled, Split(scheduled, inputs));
  }
}

INSTANTIATE_TEST_SUITE_P(All, ModelMemory,
                         testing::Values(Debug{"llama3", "debugmodel", DType::kF32},
                                         Debug{"llama3", "debugmodel", DType::kBF16},
                                         Debug{"qwen3", "debugmodel", DType::kF32},
                                         Debug{"qwen3", "debugmodel_moe", DType::kBF16},
                                         Debug{"deepseek_v3", "debugmodel", DType::kBF16},
                                         Debug{"mlp", "small", DType::kF32}),
                         [](const auto& info) {
                           return fmt::format("{}_{}_{}", info.param.family, info.param.flavor,
                                              Name(info.param.compute));
                         });

// Views, arithmetic, launches of several tensors, host memory and updates over square matrices, so that any value fits anywhere.
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
