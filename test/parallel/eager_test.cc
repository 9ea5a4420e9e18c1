// Training steps as graphs on ranks against eager FSDP2, DDP and HSDP: every bit of the loss and of every rank's state.
#include <gtest/gtest.h>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "heddle/aten/dtype.h"
#include "heddle/eager/data_parallel.h"
#include "heddle/models/init.h"
#include "heddle/plan/presets/presets.h"
#include "heddle/runtime/shards.h"
#include "heddle/runtime/world.h"
#include "test/parallel/ranks.h"

namespace heddle {
namespace {

struct Debug {
  const char* family;
  const char* flavor;
  DType compute;
};
struct Layout {
  const char* name;
  int64_t replicate;
  int64_t shard;
};
constexpr Layout kLayouts[] = {
    {"one", 1, 1}, {"fsdp4", 1, 4}, {"ddp4", 4, 1}, {"hsdp2x2", 2, 2}, {"fsdp3", 1, 3}};

class EagerTest : public testing::TestWithParam<std::tuple<Debug, Layout>> {
 protected:
  EagerTest() {
    at::set_num_threads(1);
    at::globalContext().setUserEnabledMkldnn(false);
  }
  ~EagerTest() override { at::globalContext().setUserEnabledMkldnn(true); }

  static Model MakeDebug(const Debug& debug, int64_t batch) {
    ModelConfig config = *FindModel(debug.family, debug.flavor);
    // Small, because bf16 takes long on CPUs that have no instructions for it.
    config.n_layers = 2;
    config.dim = 64;
    config.n_heads = 4;
    config.n_kv_heads = 4;
    config.head_dim = 16;
    config.ffn_dim = 96;
    config.vocab_size = 128;
    if (config.mla.kv_rank > 0)
      config.mla = {.kv_rank = 32, .nope_dim = 16, .rope_dim = 8, .v_dim = 16};
    if (config.moe.experts > 0) config.moe.ffn_dim = 32;
    config.moe.experts = std::min<int64_t>(config.moe.experts, 8);
    config.moe.top_k = std::min<int64_t>(config.moe.top_k, 3);
    return *MakeModel(config, {.batch = batch, .seq_len = 16},
                      {debug.compute, AttentionKind::kFlash, Target::kCpu});
  }

  // The graph of a step with its optimizer, on a mesh [rep, dp].
  static Module MakeLocal(const Model& model, const Layout& layout) {
    Module whole = *CaptureModel(model, OptimizerOptions());
    Plan plan =
        *MakePlan(whole.graphs[0], Mesh({{"rep", layout.replicate}, {"dp", layout.shard}}),
                  model.config.family->rules(), {.axes = {{"replicate", "rep"}, {"shard", "dp"}}});
    return Parallelized(whole, plan);
  }
};

// The inputs of every rank; state is updated in place from step to step.
class RankInputs {
 public:
  RankInputs(const Model& model, const Module& local)
      : graph_(local.graphs[0]), mesh_(local.mesh), params_(InitParams(model, 3)) {
    for (int64_t rank = 0; rank < mesh_.ranks(); ++rank) {
      Tensors& inputs = by_rank_.emplace_back();
      for (const Input& input : graph_.inputs()) {
        at::Tensor whole;
        if (input.role == InputRole::kParam) whole = params_[static_cast<size_t>(input.index)];
        if (input.role == InputRole::kOpt)
          whole = at::zeros(params_[static_cast<size_t>(input.index)].sizes());
        inputs.push_back(whole.defined() ? Shard(input, whole, rank) : at::Tensor());
      }
    }
  }

  void Set(const Model& model, double lr, int64_t step) {
    std::vector<at::Tensor> batch = MakeInputs(model, 3, step);
    for (int64_t rank = 0; rank < mesh_.ranks(); ++rank) {
      Tensors& inputs = by_rank_[static_cast<size_t>(rank)];
      size_t next = 0;
      for (size_t i = 0; i < inputs.size(); ++i) {
        const Input& input = graph_.inputs()[i];
        if (input.role == InputRole::kHyper)
          inputs[i] = input.label == "lr" ? at::full({}, lr, at::kDouble)
                                          : at::full({}, static_cast<double>(step), at::kFloat);
        if (input.role == InputRole::kBatch || input.role == InputRole::kBuffer)
          inputs[i] = Shard(input, batch[next++], rank);
      }
    }
  }

  const std::vector<Tensors>& by_rank() const { return by_rank_; }
  const std::vector<at::Tensor>& params() const { return params_; }

 private:
  at::Tensor Shard(const Input& input, const at::Tensor& whole, int64_t rank) const {
    return ShardOf(whole, graph_.placements()[input.global.placement], mesh_, rank).clone();
  }

  const Graph& graph_;
  const Mesh& mesh_;
  std::vector<at::Tensor> params_;
  std::vector<Tensors> by_rank_;
};

TEST_P(EagerTest, GraphsTrainToTheSameBits) {
  auto [debug, layout] = GetParam();
  Model model = MakeDebug(debug, 2 * layout.replicate * layout.shard);
  Module local = MakeLocal(model, layout);
  World world = *World::Compile(local, local.graphs[0]);
  RankInputs inputs(model, local);
  EagerDataParallel eager(model, inputs.params(),
                          {.replicate = layout.replicate, .shard = layout.shard, .optimizer = {}});
  for (int64_t step = 1; step <= 3; ++step) {
    double lr = 1e-3 / static_cast<double>(step);
    inputs.Set(model, lr, step);
    auto outputs = world.Run(inputs.by_rank());
    ASSERT_TRUE(outputs.ok()) << Format(outputs.diagnostics());
    EagerStep expected = eager.Step(MakeInputs(model, 3, step), lr, step);
    for (int64_t rank = 0; rank < eager.ranks(); ++rank) {
      auto r = static_cast<size_t>(rank);
      EXPECT_TRUE(SameBits((*outputs)[r][0], expected.loss)) << "step " << step;
      for (size_t i = 0; i < local.graphs[0].inputs().size(); ++i) {
        const Input& input = local.graphs[0].inputs()[i];
        auto p = static_cast<size_t>(input.index);
        if (input.role != InputRole::kParam && input.role != InputRole::kOpt) continue;
        const at::Tensor& own = input.role == InputRole::kParam ? eager.param(rank, p)
                                : input.label == "exp_avg"      ? eager.exp_avg(rank, p)
                                                                : eager.exp_avg_sq(rank, p);
        ASSERT_TRUE(SameBits(inputs.by_rank()[r][i], own))
            << "step " << step << " rank " << rank << " " << model.params[p].name << " "
            << input.label;
      }
    }
  }
}

constexpr Debug kDebugs[] = {{"llama3", "debugmodel", DType::kF32},
                             {"llama3", "debugmodel", DType::kBF16},
                             {"qwen3", "debugmodel", DType::kBF16},
                             {"qwen3", "debugmodel_moe", DType::kF32},
                             {"deepseek_v3", "debugmodel", DType::kBF16}};
INSTANTIATE_TEST_SUITE_P(All, EagerTest,
                         testing::Combine(testing::ValuesIn(kDebugs), testing::ValuesIn(kLayouts)),
                         [](const auto& info) {
                           const Debug& debug = std::get<0>(info.param);
                           return fmt::format("{}_{}_{}_{}", debug.family, debug.flavor,
                                              Name(debug.compute), std::get<1>(info.param).name);
                         });

}  // namespace
}  // namespace heddle
