// Biases of experts change with the experts' numbers of tokens.
#include <gtest/gtest.h>

#include <ATen/ops/allclose.h>
#include <ATen/ops/tensor.h>

#include "heddle/run/models/decoder.h"
#include "heddle/run/models/model.h"
#include "heddle/run/models/test/inputs.h"
#include "heddle/run/runtime/rank_program.h"

namespace heddle {
namespace {

TEST(Balance, FollowsTorchTitan) {
  at::Tensor bias = at::tensor({0.5, 0.0, 0.0, 0.0}, at::kFloat);
  at::Tensor counts = at::tensor({5, 1, 1, 1}, at::kLong);
  // Up for experts below the mean, down for those above, then shifted to keep the sum.
  at::Tensor expected = at::tensor({0.5 - 1.5e-3, 0.5e-3, 0.5e-3, 0.5e-3}, at::kFloat);
  EXPECT_TRUE(
      at::allclose(run::BalancedBias({.bias_rate = 1e-3}, bias, counts), expected, 0, 1e-7));
  at::Tensor even = at::tensor({2, 2, 2, 2}, at::kLong);
  EXPECT_TRUE(at::allclose(run::BalancedBias({.bias_rate = 1e-3}, bias, even), bias, 0, 0));
}

run::ModelConfig Small() {
  run::ModelConfig config = *run::FindModel("deepseek_v3", "debugmodel");
  config.dim = 32;
  config.n_layers = 3;
  config.vocab_size = 64;
  return config;
}

std::vector<const Output*> BiasUpdates(const Graph& graph) {
  std::vector<const Output*> updates;
  for (const Output& output : graph.outputs()) {
    if (output.role != OutputRole::kUpdate) continue;
    for (const Input& input : graph.inputs()) {
      if (input.value == output.target && input.role == InputRole::kBuffer)
        updates.push_back(&output);
    }
  }
  return updates;
}

TEST(Balance, IsPartOfStepsWithAnOptimizer) {
  run::ModelConfig config = Small();
  run::Model model = *run::MakeModel(config, {.batch = 1, .seq_len = 8}, {});
  // One layer is dense.
  Module step = *run::CaptureModel(model, run::OptimizerOptions());
  EXPECT_EQ(BiasUpdates(step.graphs[0]).size(), 2u);
  EXPECT_TRUE(BiasUpdates(run::CaptureModel(model)->graphs[0]).empty());
  config.moe.bias_rate = 0;
  run::Model still = *run::MakeModel(config, {.batch = 1, .seq_len = 8}, {});
  EXPECT_TRUE(BiasUpdates(run::CaptureModel(still, run::OptimizerOptions())->graphs[0]).empty());
}

TEST(Balance, CountsTheTokensOfEveryExpert) {
  run::Model model = *run::MakeModel(Small(), {.batch = 2, .seq_len = 8}, {});
  run::StepResult result = model.loss_sum(run::InitParams(model, 3), run::MakeInputs(model, 3, 1));
  ASSERT_EQ(result.changes.size(), 2u);
  for (const run::BufferChange& change : result.changes) {
    EXPECT_TRUE(run::IsState(model.inputs[change.input]));
    EXPECT_EQ(change.seen.sum().item<int64_t>(), 2 * 8 * model.config.moe.top_k);
    EXPECT_EQ(change.seen.numel(), model.config.moe.experts);
  }
}

}  // namespace
}  // namespace heddle
