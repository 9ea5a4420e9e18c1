// Constants of models: those of published checkpoints, and TorchTitan's for the debug models.
#include <cmath>

#include <gtest/gtest.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/angle.h>

#include "heddle/run/models/test/inputs.h"

namespace heddle {
namespace {

run::ModelConfig Config(const char* family, const char* flavor) {
  return *run::FindModel(family, flavor);
}

TEST(Published, RotaryEmbeddings) {
  for (const char* flavor : {"debugmodel", "8B", "70B", "405B"})
    EXPECT_EQ(Config("llama3", flavor).rope.factor, 8.0) << flavor;
  for (const char* flavor : {"1B", "3B"})
    EXPECT_EQ(Config("llama3", flavor).rope.factor, 32.0) << flavor;
  for (const run::ModelConfig& config : run::AllModels()) {
    if (config.family->name == "llama3") {
      EXPECT_EQ(config.rope.scaling,
                config.flavor == "debugmodel" ? run::RopeScaling::kNone : run::RopeScaling::kLlama);
      EXPECT_EQ(config.rope.theta, 5e5);
      EXPECT_EQ(config.rope.original_length, 8192);
    } else if (config.family->name == "qwen3") {
      EXPECT_EQ(config.rope.scaling, run::RopeScaling::kNone);
      EXPECT_EQ(config.rope.theta, 1e6) << config.flavor;
    } else if (config.family->name == "deepseek_v3") {
      EXPECT_EQ(config.rope.scaling, run::RopeScaling::kYarn);
      EXPECT_EQ(config.rope.theta, 1e4);
      EXPECT_EQ(config.rope.factor, 40.0);
      EXPECT_EQ(config.rope.original_length, 4096);
    }
  }
}

TEST(Published, NormsAndMixtures) {
  EXPECT_EQ(Config("llama3", "8B").norm_eps, 1e-5);
  EXPECT_EQ(Config("qwen3", "8B").norm_eps, 1e-6);
  for (const char* flavor : {"16B", "236B", "671B"}) {
    EXPECT_EQ(Config("deepseek_v3", flavor).norm_eps, 1e-6) << flavor;
    EXPECT_EQ(Config("deepseek_v3", flavor).mla.norm_eps, 1e-6) << flavor;
  }
  EXPECT_EQ(Config("deepseek_v3", "16B").mla.mscale, 0.707);
  EXPECT_EQ(Config("deepseek_v3", "236B").mla.mscale, 1.0);
  EXPECT_EQ(Config("deepseek_v3", "236B").moe.group_score, run::GroupScore::kMax);
  EXPECT_EQ(Config("deepseek_v3", "671B").moe.group_score, run::GroupScore::kTopTwo);
  EXPECT_FALSE(Config("deepseek_v3", "16B").moe.bias);
  EXPECT_TRUE(Config("deepseek_v3", "671B").moe.bias);
  EXPECT_EQ(Config("qwen3", "30B-A3B").ffn_dim, 6144);
  EXPECT_EQ(Config("qwen3", "235B-A22B").ffn_dim, 12288);
  run::ModelConfig debug = Config("deepseek_v3", "debugmodel");
  EXPECT_EQ(debug.norm_eps, 1e-5);
  EXPECT_EQ(debug.mla.norm_eps, 1e-5);
  EXPECT_EQ(debug.mla.mscale, 0.70);
}

double InitialLoss(run::ModelConfig config) {
  at::NoGradGuard no_grad;
  config.n_layers = 2;
  run::Model model = *run::MakeModel(config, {.batch = 2, .seq_len = 64}, {});
  return model.loss(run::InitParams(model, 3), run::MakeInputs(model, 3, 1)).item<double>();
}

TEST(Published, TrainingBeginsNearTheLogarithmOfTheVocabulary) {
  run::ModelConfig tied = Config("llama3", "debugmodel");
  tied.tied = true;
  double expected = std::log(2048.0);
  EXPECT_NEAR(InitialLoss(tied), expected, 0.3);
  EXPECT_NEAR(InitialLoss(Config("llama3", "debugmodel")), expected, 1.0);
  EXPECT_NEAR(InitialLoss(Config("qwen3", "debugmodel")), expected, 0.2);
  EXPECT_NEAR(InitialLoss(Config("deepseek_v3", "debugmodel")), expected, 1.0);
}

double Deviation(const run::ModelConfig& config, const std::string& name) {
  run::Model model = *run::MakeModel(config, {.batch = 1, .seq_len = 8}, {});
  for (const run::ParamSpec& param : model.params) {
    if (param.name == name) return run::InitParam(model, param, 3).std().item<double>();
  }
  ADD_FAILURE() << name;
  return 0;
}

TEST(Published, InitialWeights) {
  run::ModelConfig qwen = Config("qwen3", "debugmodel");
  EXPECT_NEAR(Deviation(qwen, "tok_embeddings.weight"), 0.02, 2e-4);
  EXPECT_NEAR(Deviation(qwen, "layers.3.attention.wo.weight"), 0.02, 2e-4);
  EXPECT_NEAR(Deviation(qwen, "layers.3.feed_forward.w3.weight"), 0.02, 2e-4);
  run::ModelConfig mixture = Config("qwen3", "debugmodel_moe");
  EXPECT_NEAR(Deviation(mixture, "output.weight"), 0.02, 2e-4);
  EXPECT_NEAR(Deviation(mixture, "layers.3.attention.wo.weight"), 0.02 / 4, 5e-5);
  run::ModelConfig deepseek = Config("deepseek_v3", "debugmodel");
  EXPECT_NEAR(Deviation(deepseek, "layers.1.moe.router.gate.weight"), 0.02 / 2, 5e-4);
  EXPECT_NEAR(Deviation(deepseek, "tok_embeddings.weight"), 1.0, 1e-2);
  run::ModelConfig tied = Config("llama3", "debugmodel");
  tied.tied = true;
  EXPECT_NEAR(Deviation(tied, "tok_embeddings.weight"), 0.02, 2e-4);
}

TEST(Published, RotationsOfAStretchedContext) {
  run::ModelConfig config = Config("llama3", "debugmodel");
  auto rope = [](const run::ModelConfig& c) {
    run::Model model = *run::MakeModel(c, {.batch = 1, .seq_len = 4}, {});
    return run::MakeBuffer(model, model.inputs[0]);
  };
  config.rope.scaling = run::RopeScaling::kLlama;
  at::Tensor scaled = at::angle(rope(config));
  config.rope.scaling = run::RopeScaling::kNone;
  at::Tensor plain = at::angle(rope(config));
  // Of eight frequencies, the first is fast and not scaled; the last is slow.
  EXPECT_EQ(scaled[1][0].item<float>(), plain[1][0].item<float>());
  EXPECT_NEAR(scaled[1][7].item<double>() * 8, plain[1][7].item<double>(), 1e-9);
  config.rope.attention_factor = 2.0;
  EXPECT_NEAR(at::abs(rope(config))[3][0].item<double>(), 2.0, 1e-6);
}

TEST(Published, ConstantsCanBeSet) {
  run::ModelConfig config = Config("deepseek_v3", "671B");
  EXPECT_TRUE(run::OverrideNumber(config, "rope_theta", 5e6).ok());
  EXPECT_TRUE(run::OverrideNumber(config, "mla.mscale", 0.7).ok());
  EXPECT_TRUE(run::OverrideChoice(config, "moe.score", "softmax").ok());
  EXPECT_TRUE(run::OverrideChoice(config, "moe.group_score", "max").ok());
  EXPECT_TRUE(run::OverrideChoice(config, "tied", "true").ok());
  EXPECT_EQ(config.rope.theta, 5e6);
  EXPECT_EQ(config.mla.mscale, 0.7);
  EXPECT_EQ(config.moe.score, run::RouterScore::kSoftmax);
  EXPECT_EQ(config.moe.group_score, run::GroupScore::kMax);
  EXPECT_TRUE(config.tied);
  EXPECT_EQ(run::OverrideChoice(config, "moe.score", "softmix").diagnostics()[0].message,
            "moe.score is `softmix`; nearest is `softmax`; it is one of softmax, sigmoid");
  EXPECT_EQ(run::OverrideNumber(config, "norm_epd", 1).diagnostics()[0].message,
            "models have no number `norm_epd`; nearest is `norm_eps`");
}

TEST(Published, NumbersOutOfRangeAreRefused) {
  auto kind = [](const char* name, double value) {
    run::ModelConfig config = Config("deepseek_v3", "debugmodel");
    EXPECT_TRUE(run::OverrideNumber(config, name, value).ok());
    Status checked = run::CheckConfig(config);
    return checked.ok() ? Diag::kSyntax : checked.diagnostics()[0].kind;
  };
  EXPECT_EQ(kind("rope_theta", 1.0), Diag::kModelSize);
  EXPECT_EQ(kind("rope_scaling.factor", 0.0), Diag::kModelSize);
  EXPECT_EQ(kind("rope_scaling.slow", 32.0), Diag::kModelSize);
  EXPECT_EQ(kind("rope_scaling.fast", 64.0), Diag::kSyntax);
  run::ModelConfig config = Config("llama3", "8B");
  config.rope.low_freq = 4.0;
  EXPECT_FALSE(run::CheckConfig(config).ok());
}

}  // namespace
}  // namespace heddle
