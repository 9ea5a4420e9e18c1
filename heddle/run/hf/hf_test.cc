#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>

#include <fcntl.h>
#include <unistd.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include <nlohmann/json.hpp>

#include "heddle/core/base/file.h"
#include "heddle/run/checkpoint/disk.h"
#include "heddle/run/hf/config.h"
#include "heddle/run/hf/export.h"
#include "heddle/run/hf/export_folder.h"
#include "heddle/run/hf/folder.h"
#include "heddle/run/hf/load.h"
#include "heddle/run/hf/names.h"
#include "heddle/run/models/family.h"

namespace {
// Number of calls of rename and unlink before they fail, which simulates a kill. Negative: they
// never fail.
int calls_left = -1;

bool Fails() {
  if (calls_left < 0) return false;
  if (calls_left > 0) --calls_left;
  if (calls_left == 0) errno = EIO;
  return calls_left == 0;
}
}  // namespace

// Replaces the function of the C library.
extern "C" int rename(const char* from, const char* to) noexcept {
  return Fails() ? -1 : ::renameat(AT_FDCWD, from, AT_FDCWD, to);
}
extern "C" int unlink(const char* path) noexcept {
  return Fails() ? -1 : ::unlinkat(AT_FDCWD, path, 0);
}

namespace heddle::run {
namespace {

ModelConfig Tiny(const char* family, const char* flavor) {
  ModelConfig c = *FindModel(family, flavor);
  c.dim = 32;
  c.n_layers = 2;
  c.n_heads = 4;
  c.n_kv_heads = c.family->name == "gpt2" ? 4 : 2;
  c.ffn_dim = 48;
  c.vocab_size = 64;
  if (c.moe.experts > 0) {
    c.moe.experts = 16;
    c.moe.top_k = 2;
    bool alike = c.family->name == "mixtral" || c.family->name == "gpt_oss";
    c.moe.ffn_dim = alike ? c.ffn_dim : 8;
    c.moe.dense_layers = alike ? 0 : 1;
  }
  return c;
}

Model MakeTiny(const ModelConfig& config) {
  return *MakeModel(config, {.batch = 1, .seq_len = 8}, {});
}

TEST(Hf, ConfigsComeBackAsTheyWere) {
  for (auto [family, flavor] :
       {std::pair("llama3", "8B"), std::pair("llama3", "1B"), std::pair("qwen3", "0.6B"),
        std::pair("mistral", "7B-v0.1"), std::pair("mistral", "Nemo-12B"),
        std::pair("mixtral", "8x7B"), std::pair("qwen2", "0.5B"), std::pair("olmo2", "32B"),
        std::pair("phi3", "mini"), std::pair("qwen3", "235B-A22B"), std::pair("gemma2", "2B"),
        std::pair("gemma2", "27B"), std::pair("gemma3", "1B"), std::pair("gemma3", "27B"),
        std::pair("gpt2", "355M"), std::pair("gpt_oss", "20B"), std::pair("deepseek_v3", "671B")}) {
    ModelConfig config = *FindModel(family, flavor);
    Result<std::string> text = FormatHfConfig(config, "float32");
    ASSERT_TRUE(text.ok()) << Format(text.diagnostics());
    Result<ModelConfig> back = ParseHfConfig(*text);
    ASSERT_TRUE(back.ok()) << Format(back.diagnostics());
    EXPECT_EQ(back->family, config.family);
    if (config.head_dim == 0 && config.mla.kv_rank == 0) config.head_dim = config.head_size();
    for (const ConfigField& field : ConfigFields()) {
      if (field.size != nullptr) {
        EXPECT_EQ(field.size(*back), field.size(config)) << field.name;
      }
      // The writer omits scaling factors of models without scaling.
      bool idle = config.rope.scaling == RopeScaling::kNone || config.mla.kv_rank == 0;
      if (field.number != nullptr && !(idle && field.name.starts_with("mla"))) {
        EXPECT_EQ(field.number(*back), field.number(config)) << flavor << " " << field.name;
      }
    }
    EXPECT_EQ(back->tied, config.tied);
    EXPECT_EQ(back->rope.scaling, config.rope.scaling);
    EXPECT_EQ(back->moe.bias, config.moe.bias);
    EXPECT_EQ(back->moe.score, config.moe.score);
  }
}

// Returns the error for the config of a tiny Llama with one key changed.
std::string Wrong(const char* key, const nlohmann::json& value) {
  nlohmann::json json =
      nlohmann::json::parse(*FormatHfConfig(Tiny("llama3", "debugmodel"), "float32"));
  json[key] = value;
  Result<ModelConfig> config = ParseHfConfig(json.dump());
  return config.ok() ? "" : config.diagnostics()[0].message;
}

TEST(Hf, ConfigsOfOtherModelsAreRefused) {
  EXPECT_EQ(Wrong("vocab_size", 64), "");
  std::string layers =
      R"({"model_type": "gemma2", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48,
          "num_hidden_layers": 9000000000000000, "num_attention_heads": 4,
          "layer_types": ["sliding_attention", "full_attention", "full_attention"]})";
  EXPECT_TRUE(ParseHfConfig(layers).diagnostics()[0].message.starts_with(
      "`layer_types` has \"full_attention\" as number 3; "));
  // More types follow; a new family adds to them.
  EXPECT_TRUE(
      Wrong("model_type", "bert").starts_with("`model_type` is `bert`; expected one of llama, "));
  EXPECT_EQ(Wrong("hidden_act", "gelu"),
            "`hidden_act` is \"gelu\"; Heddle's models support \"silu\" only");
  EXPECT_EQ(Wrong("attention_bias", true),
            "`attention_bias` is true; Heddle's models support false only");
  EXPECT_EQ(Wrong("quantization_config", {{"quant_method", "fp8"}}),
            "`quantization_config` is given; Heddle cannot load quantized weights");
  EXPECT_EQ(Wrong("quantization_config", {{"quant_method", "mxfp4"}}),
            "`quantization_config` is given; Heddle cannot load MXFP4 weights; load them in "
            "transformers with Mxfp4Config(dequantize=True), and save the model");
  EXPECT_EQ(Wrong("rope_scaling", {{"rope_type", "longrope"}}),
            "`rope_scaling.rope_type` is `longrope`, expected default, linear, llama3 or yarn");
  EXPECT_EQ(Wrong("rope_scaling", {{"rope_type", "llama3"}}), "`rope_scaling.factor` is missing");
  EXPECT_EQ(Wrong("rope_scaling", 3), "`rope_scaling` is 3, expected an object");
  EXPECT_EQ(Wrong("hidden_size", -3), "`hidden_size` is -3, expected a whole number from 0 on");
  EXPECT_EQ(Wrong("hidden_size", 1e300),
            "`hidden_size` is 1e+300, expected a whole number from 0 on");
  EXPECT_EQ(Wrong("hidden_size", {1, 2}),
            "`hidden_size` is a list, expected a whole number from 0 on");
  EXPECT_EQ(Wrong("num_attention_heads", 3), "3 query heads are not a multiple of 2 key heads");
  // All mistakes of a file are reported: sizes that every class has.
  EXPECT_EQ(ParseHfConfig(R"({"model_type": "llama"})").diagnostics().size(), 5);
  EXPECT_EQ(ParseHfConfig("{").diagnostics()[0].message, "not JSON: expected a key in quotes");
  EXPECT_EQ(ParseHfConfig("[]").diagnostics()[0].message, "the file is a list, expected an object");
  EXPECT_EQ(ParseHfConfig(R"({"a":1,"a":2})").diagnostics()[0].message,
            "not JSON: the key `a` is given twice");
  EXPECT_EQ(ParseHfConfig(std::string(100'000, '[')).diagnostics()[0].kind, Diag::kFileRead);
}

TEST(Hf, ModelsThatTransformersLacksAreNotWritten) {
  auto message = [](const ModelConfig& config) {
    Result<std::string> text = FormatHfConfig(config, "float32");
    return text.ok() ? "" : text.diagnostics()[0].message;
  };
  EXPECT_EQ(message(*FindModel("mlp", "small")),
            "transformers has no class for models of family `mlp`");
  EXPECT_EQ(message(*FindModel("deepseek_v3", "16B")),
            "transformers has no class for this model: DeepseekV3ForCausalLM has scores by sigmoid "
            "only");
  ModelConfig gemma = *FindModel("gemma3", "1B");
  gemma.window = 0;
  EXPECT_EQ(message(gemma),
            "transformers has no class for this model: Gemma3ForCausalLM has a sliding window");
  ModelConfig capped = *FindModel("llama3", "8B");
  capped.attention_softcap = 50;
  EXPECT_EQ(message(capped),
            "transformers has no class for this model: LlamaForCausalLM has no softcap of "
            "attention");
  ModelConfig qwen = *FindModel("qwen3", "30B-A3B");
  EXPECT_EQ(message(qwen), "");
  qwen.moe.bias = true;
  EXPECT_EQ(message(qwen),
            "transformers has no class for this model: Qwen3MoeForCausalLM has no bias of experts");
}

TEST(Hf, RowsOfRotatedHeadsMove) {
  ModelConfig config = Tiny("llama3", "debugmodel");
  HfWeight wq = HfWeightOf(config, "layers.1.attention.wq.weight");
  EXPECT_EQ(wq.names[0], "model.layers.1.self_attn.q_proj.weight");
  EXPECT_EQ(wq.rotated_heads, 4);
  at::Tensor ours = at::arange(64).view({32, 2});
  std::vector<at::Tensor> tensors;
  ToHf(wq, ours, tensors);
  at::Tensor theirs = tensors[0];
  // The second number of the first pair begins the second half of the head.
  EXPECT_EQ(theirs[4][0].item<int64_t>(), ours[1][0].item<int64_t>());
  EXPECT_TRUE(at::equal(FromHf(wq, {theirs}), ours));
  EXPECT_EQ(HfWeightOf(config, "layers.1.attention.wk.weight").rotated_heads, 2);
  EXPECT_EQ(HfWeightOf(Tiny("qwen3", "debugmodel"), "layers.1.attention.wq.weight").rotated_heads,
            0);
}

TEST(Hf, FoldersComeBackBitForBit) {
  for (auto [family, flavor] :
       {std::pair("llama3", "1B"), std::pair("qwen3", "debugmodel"),
        std::pair("mistral", "debugmodel"), std::pair("mixtral", "debugmodel"),
        std::pair("qwen2", "debugmodel"), std::pair("olmo2", "debugmodel"),
        std::pair("phi3", "debugmodel"), std::pair("qwen3", "debugmodel_moe"),
        std::pair("gemma2", "debugmodel"), std::pair("gemma3", "debugmodel"),
        std::pair("gpt2", "debugmodel"), std::pair("gpt_oss", "debugmodel"),
        std::pair("deepseek_v3", "671B")}) {
    TempDir folder;
    Model model = MakeTiny(Tiny(family, flavor));
    for (const StepInput& input : model.inputs) {
      if (IsState(input)) model.state[input.name] = at::arange(16).to(at::kFloat);
    }
    ParamSource params = InitialParams(model, 5);
    Result<HfExport> done = ExportHf(model, params, folder.path(), {.most_bytes = KiB(20)});
    ASSERT_TRUE(done.ok()) << Format(done.diagnostics());
    EXPECT_GT(done->files, 1);
    Model loaded = MakeTiny(*ReadHfConfig(folder.path()));
    Result<ParamSource> back = LoadParams(loaded, folder.path());
    ASSERT_TRUE(back.ok()) << Format(back.diagnostics());
    for (size_t i = 0; i < model.params.size(); ++i)
      EXPECT_TRUE(at::equal(*(*back)(i), *params(i))) << model.params[i].name;
    for (const auto& [name, value] : model.state)
      EXPECT_TRUE(at::equal(loaded.state[name], value)) << name;
    EXPECT_EQ(loaded.state.size(), model.state.size());
  }
}

// Returns which of two sources the weights in a folder match: `old`, `new`, or `none` if they do
// not load.
std::string Loaded(Model& model, const std::string& folder, const ParamSource& old_weights,
                   const ParamSource& new_weights) {
  Result<ParamSource> back = LoadParams(model, folder);
  if (!back.ok()) return "none";
  size_t old_count = 0;
  size_t new_count = 0;
  for (size_t i = 0; i < model.params.size(); ++i) {
    at::Tensor tensor = *(*back)(i);
    old_count += at::equal(tensor, *old_weights(i)) ? 1 : 0;
    new_count += at::equal(tensor, *new_weights(i)) ? 1 : 0;
  }
  // Norms are the same in both.
  if (old_count == model.params.size()) return "old";
  return new_count == model.params.size() ? "new" : "a mix";
}

TEST(Hf, ExportsReplaceExportsWhereverTheyAreKilled) {
  Model model = MakeTiny(Tiny("llama3", "debugmodel"));
  ParamSource old_weights = InitialParams(model, 5);
  ParamSource new_weights = InitialParams(model, 6);
  for (auto [old_size, new_size] :
       {std::pair(20, 20), {20, 40}, {20, 4000}, {4000, 20}, {4000, 4000}}) {
    std::map<std::string, int> seen;
    for (int calls = 1;; ++calls) {
      TempDir folder;
      ASSERT_TRUE(ExportHf(model, old_weights, folder.path(), {.most_bytes = KiB(old_size)}).ok());
      ASSERT_TRUE(WriteFile(folder.path() + "/tokenizer.json", "{}").ok());
      calls_left = calls;
      Result<HfExport> done =
          ExportHf(model, new_weights, folder.path(), {.most_bytes = KiB(new_size)});
      calls_left = -1;
      std::string loaded = Loaded(model, folder.path(), old_weights, new_weights);
      EXPECT_NE(loaded, "a mix") << calls;
      EXPECT_EQ(*ReadFile(folder.path() + "/tokenizer.json"), "{}");
      ++seen[loaded];
      if (!done.ok()) continue;
      EXPECT_EQ(loaded, "new");
      break;
    }
    EXPECT_GT(seen["old"], 0);
    EXPECT_GT(seen["none"], 0);
    EXPECT_EQ(seen["new"], 1);
  }
}

TEST(Hf, AnExportLeavesNoOtherFiles) {
  TempDir folder;
  Model model = MakeTiny(Tiny("llama3", "debugmodel"));
  ASSERT_TRUE(
      ExportHf(model, InitialParams(model, 5), folder.path(), {.most_bytes = KiB(20)}).ok());
  // Simulates the state after a kill.
  ASSERT_TRUE(MakeDirectories(folder.path() + "/.heddle-export").ok());
  ASSERT_TRUE(WriteFile(folder.path() + "/.heddle-export/model.safetensors", "half").ok());
  ASSERT_TRUE(ExportHf(model, InitialParams(model, 6), folder.path()).ok());
  EXPECT_EQ(*NamesIn(folder.path()),
            (std::vector<std::string>{"config.json", "model.safetensors"}));
}

TEST(Hf, OneExportAtATime) {
  TempDir folder;
  Model model = MakeTiny(Tiny("llama3", "debugmodel"));
  ExportFolder held = *ExportFolder::Open(folder.path());
  ASSERT_TRUE(WriteFile(held.PathOf("model.safetensors"), "half").ok());
  EXPECT_EQ(ExportHf(model, InitialParams(model, 5), folder.path()).diagnostics()[0].message,
            "another process exports into this folder; wait for it, or give another folder");
  EXPECT_TRUE(ReadFile(held.PathOf("model.safetensors")).ok());
}

TEST(Hf, FoldersWhoseFilesDisagreeAreRefused) {
  Model model = MakeTiny(Tiny("llama3", "debugmodel"));
  auto refusal = [&](auto&& damage) {
    TempDir folder;
    EXPECT_TRUE(
        ExportHf(model, InitialParams(model, 5), folder.path(), {.most_bytes = KiB(20)}).ok());
    damage(folder.path() + "/");
    Result<ParamSource> loaded = LoadParams(model, folder.path());
    return loaded.ok() ? "" : loaded.diagnostics()[0].message;
  };
  const std::string kIndex = "model.safetensors.index.json";
  std::string first;
  std::string mixed = "; two exports are mixed: remove the files of one, or export again";
  EXPECT_EQ(refusal([&](const std::string& in) { first = NamesIn(in)->at(1); }), "");
  EXPECT_TRUE(first.starts_with("model-00001-of-")) << first;
  EXPECT_EQ(refusal([&](const std::string& in) { std::remove((in + first).c_str()); }),
            "has no " + first + ", but " + kIndex + " lists it");
  EXPECT_EQ(refusal([&](const std::string& in) {
              (void)WriteFile(in + "model.safetensors", *ReadFile(in + first));
            }),
            "has model.safetensors, which " + kIndex + " does not list" + mixed);
  EXPECT_EQ(refusal([&](const std::string& in) {
              (void)WriteFile(in + "model-00001-of-00099.safetensors", *ReadFile(in + first));
            }),
            "has model-00001-of-00099.safetensors, which " + kIndex + " does not list" + mixed);
  EXPECT_EQ(refusal([&](const std::string& in) {
              (void)WriteFile(in + "model.safetensors", *ReadFile(in + first));
              std::remove((in + kIndex).c_str());
            }),
            "has " + first + ", which is not part of model.safetensors" + mixed);
  std::string tensor;
  std::string unnamed = refusal([&](const std::string& in) {
    auto index = nlohmann::json::parse(*ReadFile(in + kIndex));
    // Picks one of several tensors of a file.
    std::map<std::string, int> count;
    for (const auto& [name, file] : index["weight_map"].items()) {
      if (++count[file.get<std::string>()] == 2) tensor = name;
    }
    index["weight_map"].erase(tensor);
    (void)WriteFile(in + kIndex, index.dump());
  });
  EXPECT_EQ(unnamed, "has `" + tensor + "`, which " + kIndex + " does not list");
  // Other files of a published folder are not weights of the model.
  EXPECT_EQ(
      refusal([&](const std::string& in) { (void)WriteFile(in + "consolidated.safetensors", ""); }),
      "");
}

TEST(Hf, FoldersThatDoNotFitAreRefused) {
  TempDir folder;
  Model model = MakeTiny(Tiny("llama3", "debugmodel"));
  ASSERT_TRUE(ExportHf(model, InitialParams(model, 5), folder.path()).ok());
  ModelConfig other = model.config;
  other.ffn_dim = 40;
  Model narrow = MakeTiny(other);
  Result<ParamSource> loaded = LoadParams(narrow, folder.path());
  EXPECT_EQ(loaded.diagnostics()[0].message,
            "`model.layers.0.mlp.gate_proj.weight` is [48,32], but the model expects [40,32]");
  EXPECT_EQ(loaded.diagnostics().size(), 6u);
  other = model.config;
  other.n_layers = 1;
  Model shallow = MakeTiny(other);
  EXPECT_EQ(LoadParams(shallow, folder.path()).diagnostics()[0].message,
            "has `model.layers.1.input_layernorm.weight`, which the model does not have");
  TempDir empty;
  EXPECT_EQ(LoadParams(model, empty.path()).diagnostics()[0].message,
            "contains neither model.safetensors nor model.safetensors.index.json");
  EXPECT_FALSE(ReadHfConfig(empty.path()).ok());
  std::string index = folder.path() + "/model.safetensors.index.json";
  ASSERT_TRUE(WriteFile(index, R"({"weight_map":{"a":"../model.safetensors"}})").ok());
  EXPECT_EQ(LoadParams(model, folder.path()).diagnostics()[0].message,
            "`a` is in \"../model.safetensors\", expected a .safetensors file of this folder");
  ASSERT_TRUE(WriteFile(index, R"({"weight_map":{"a":"model.safetensors"}})").ok());
  EXPECT_EQ(LoadParams(model, folder.path()).diagnostics()[0].message,
            "`a` is not in model.safetensors");
}

}  // namespace
}  // namespace heddle::run
