#include <gtest/gtest.h>

#include "heddle/run/models/model.h"

namespace heddle {
namespace {

struct Size {
  const char* family;
  const char* flavor;
  int64_t parameters;
};

TEST(Models, HaveThePublishedNumbersOfParameters) {
  const Size sizes[] = {
      {"llama3", "debugmodel", 6'163'712},
      {"llama3", "1B", 1'235'814'400},
      {"llama3", "3B", 3'212'749'824},
      {"llama3", "8B", 8'030'261'248},
      {"llama3", "70B", 70'553'706'496},
      {"llama3", "405B", 405'853'388'800},
      {"llama2", "7B", 6'738'415'616},
      {"llama2", "13B", 13'015'864'320},
      {"llama2", "70B", 68'976'648'192},
      {"mistral", "7B-v0.1", 7'241'732'096},
      {"mistral", "7B", 7'248'023'552},
      {"mistral", "Nemo-12B", 12'247'782'400},
      {"mistral", "Small-24B", 23'572'403'200},
      {"mixtral", "8x7B", 46'702'792'704},
      {"mixtral", "8x22B", 140'630'071'296},
      {"qwen2", "0.5B", 494'032'768},
      {"qwen2", "1.5B", 1'543'714'304},
      {"qwen2", "3B", 3'085'938'688},
      {"qwen2", "7B", 7'615'616'512},
      {"qwen2", "14B", 14'770'033'664},
      {"qwen2", "32B", 32'763'876'352},
      {"qwen2", "72B", 72'706'203'648},
      {"qwen3", "debugmodel", 31'987'968},
      {"qwen3", "0.6B", 596'049'920},
      {"qwen3", "1.7B", 1'720'574'976},
      {"qwen3", "4B", 4'022'468'096},
      {"qwen3", "8B", 8'190'735'360},
      {"qwen3", "14B", 14'768'307'200},
      {"qwen3", "32B", 32'762'123'264},
      {"qwen3", "debugmodel_moe", 315'758'848},
      {"qwen3", "30B-A3B", 30'532'122'624},
      {"qwen3", "235B-A22B", 235'093'634'560},
      {"olmo2", "1B", 1'484'916'736},
      {"olmo2", "7B", 7'298'617'344},
      {"olmo2", "13B", 13'716'198'400},
      {"olmo2", "32B", 32'234'279'936},
      {"phi3", "mini", 3'821'079'552},
      {"phi3", "medium", 13'960'238'080},
      {"phi3", "phi4", 14'659'507'200},
      {"gemma2", "2B", 2'614'341'888},
      {"gemma2", "9B", 9'241'705'984},
      {"gemma2", "27B", 27'227'128'320},
      {"gemma3", "270M", 268'098'176},
      {"gemma3", "1B", 999'885'952},
      {"gemma3", "4B", 3'880'263'168},
      {"gemma3", "12B", 11'766'034'176},
      {"gemma3", "27B", 27'009'346'304},
      {"gpt2", "124M", 124'439'808},
      {"gpt2", "355M", 354'823'168},
      {"gpt2", "774M", 774'030'080},
      {"gpt2", "1.5B", 1'557'611'200},
      {"gpt_oss", "20B", 20'914'757'184},
      {"gpt_oss", "120B", 116'829'156'672},
      {"deepseek_v3", "debugmodel", 33'014'016},
      {"deepseek_v3", "16B", 15'706'484'224},
      {"deepseek_v3", "236B", 235'741'434'880},
      {"deepseek_v3", "671B", 671'026'404'352},
  };
  for (const Size& size : sizes) {
    Result<run::ModelConfig> config = run::FindModel(size.family, size.flavor);
    ASSERT_TRUE(config.ok()) << size.family << " " << size.flavor;
    Result<run::Model> model = run::MakeModel(*config, {.batch = 1, .seq_len = 16}, {});
    ASSERT_TRUE(model.ok()) << Format(model.diagnostics());
    EXPECT_EQ(model->parameter_count(), size.parameters) << size.family << " " << size.flavor;
  }
}

TEST(Models, RegisterParametersInOrder) {
  Result<run::Model> model = run::MakeModel(*run::FindModel("llama3", "8B"), {}, {});
  ASSERT_EQ(model->params.size(), 291u);
  const char* block[] = {
      "attention.wq.weight",    "attention.wk.weight",    "attention.wv.weight",
      "attention.wo.weight",    "feed_forward.w1.weight", "feed_forward.w2.weight",
      "feed_forward.w3.weight", "attention_norm.weight",  "ffn_norm.weight"};
  for (size_t i = 0; i < 9; ++i)
    EXPECT_EQ(model->params[1 + 9 + i].name, std::string("layers.1.") + block[i]);
  EXPECT_EQ(model->params[0].unit, "tok_embeddings");
  EXPECT_EQ(model->params[289].unit, "norm+output");
  Result<run::Model> tied = run::MakeModel(*run::FindModel("qwen3", "debugmodel"), {}, {});
  EXPECT_EQ(tied->params.front().unit, "tok_embeddings+norm+output");
  EXPECT_EQ(tied->params.back().name, "norm.weight");
}

TEST(Models, RefuseSizesThatDoNotFit) {
  auto kind = [](const char* family, std::initializer_list<std::pair<const char*, int64_t>> sizes,
                 run::BatchConfig batch = {}) {
    run::ModelConfig config = *run::FindModel(family, "debugmodel");
    for (auto [name, value] : sizes) EXPECT_TRUE(run::OverrideSize(config, name, value).ok());
    Result<run::Model> model = run::MakeModel(config, batch, {});
    EXPECT_FALSE(model.ok());
    return model.ok() ? Diag::kSyntax : model.diagnostics()[0].kind;
  };
  EXPECT_EQ(kind("llama3", {{"n_layers", -1}}), Diag::kModelSize);
  EXPECT_EQ(kind("llama3", {{"n_heads", 7}}), Diag::kModelSize);
  EXPECT_EQ(kind("llama3", {{"n_kv_heads", 3}}), Diag::kModelSize);
  EXPECT_EQ(kind("llama3", {{"head_dim", 15}}), Diag::kModelSize);
  EXPECT_EQ(kind("deepseek_v3", {{"moe.top_k", 9}}), Diag::kModelSize);
  EXPECT_EQ(kind("deepseek_v3", {{"mla.rope_dim", 3}}), Diag::kModelSize);
  EXPECT_EQ(kind("mistral", {{"window", 16}}, {.seq_len = 17, .documents = true}),
            Diag::kModelSize);
  EXPECT_EQ(kind("qwen2", {{"moe.experts", 8}}), Diag::kModelSize);
  EXPECT_EQ(kind("llama3", {}, {.batch = 0}), Diag::kModelSize);
  EXPECT_EQ(kind("llama3", {}, {.batch = 1, .seq_len = 0}), Diag::kModelSize);
  // Products of such sizes overflow 64 bits.
  EXPECT_EQ(kind("llama3", {{"dim", int64_t{1} << 31}, {"n_heads", 1}, {"n_kv_heads", 1}}),
            Diag::kModelSize);
  EXPECT_EQ(kind("llama3", {{"n_layers", 1'000'000'000}}), Diag::kModelSize);
  EXPECT_EQ(kind("deepseek_v3", {{"moe.experts", 1 << 24}, {"moe.ffn_dim", 1 << 24}}),
            Diag::kModelSize);
  EXPECT_EQ(kind("llama3", {}, {.batch = 1, .seq_len = int64_t{1} << 62}), Diag::kModelSize);
  EXPECT_EQ(kind("deepseek_v3", {{"mla.v_dim", 1000}}), Diag::kModelSize);
  EXPECT_EQ(run::FindModel("lama3", "8B").diagnostics()[0].kind, Diag::kUnknownModel);
  EXPECT_EQ(run::FindModel("llama3", "8b").diagnostics()[0].kind, Diag::kUnknownModel);
}

}  // namespace
}  // namespace heddle
