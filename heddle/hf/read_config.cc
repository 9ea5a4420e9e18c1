#include <cmath>

#include "heddle/base/text.h"
#include "heddle/hf/config.h"
#include "heddle/hf/json_reader.h"
#include "heddle/models/family.h"

namespace heddle {
namespace {

using Json = nlohmann::json;

// A key that must have this value, if it is there: another would change what is computed.
struct Fixed {
  const char* key;
  Json value;
};

void CheckFixed(JsonReader& reader, std::initializer_list<Fixed> all) {
  for (const Fixed& fixed : all) {
    const Json* value = reader.Find(fixed.key);
    if (value != nullptr && *value != fixed.value)
      reader.Fail(fmt::format("`{}` is {}; Heddle's models have {} only", fixed.key,
                              value->dump(-1, ' ', false, Json::error_handler_t::replace),
                              fixed.value.dump()));
  }
}

// How YaRN sharpens attention where nothing says otherwise.
double Sharpening(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

void ReadYarn(JsonReader& reader, int64_t max_length, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  rope.scaling = RopeScaling::kYarn;
  rope.original_length = reader.Int("original_max_position_embeddings", max_length);
  rope.factor =
      reader.Number("factor", static_cast<double>(max_length) /
                                  static_cast<double>(std::max<int64_t>(rope.original_length, 1)));
  rope.fast = reader.Number("beta_fast", 32.0);
  rope.slow = reader.Number("beta_slow", 1.0);
  double mscale = reader.Number("mscale", 0.0);
  double all_dims = reader.Number("mscale_all_dim", 0.0);
  double usual = mscale > 0 && all_dims > 0
                     ? Sharpening(rope.factor, mscale) / Sharpening(rope.factor, all_dims)
                     : Sharpening(rope.factor, 1.0);
  rope.attention_factor = reader.Number("attention_factor", usual);
  config.mla.mscale = all_dims;
  CheckFixed(reader, {{"truncate", true}});
}

void ReadScaling(JsonReader& reader, int64_t max_length, ModelConfig& config) {
  std::string kind = reader.Text("rope_type", reader.Text("type", "default"));
  CheckFixed(reader, {{"partial_rotary_factor", 1.0}});
  config.rope.theta = reader.Number("rope_theta", config.rope.theta);
  if (kind == "default") return;
  if (kind == "yarn") return ReadYarn(reader, max_length, config);
  if (kind != "llama3") {
    reader.Fail(
        fmt::format("rotary embedding is scaled by `{}`; there are default, llama3, yarn", kind));
    return;
  }
  config.rope.scaling = RopeScaling::kLlama;
  config.rope.factor = reader.Number("factor");
  config.rope.low_freq = reader.Number("low_freq_factor");
  config.rope.high_freq = reader.Number("high_freq_factor");
  config.rope.original_length = reader.Int("original_max_position_embeddings", max_length);
}

// In `rope_parameters` since transformers 5, in `rope_theta` and `rope_scaling` before.
void ReadRope(JsonReader& reader, ModelConfig& config) {
  config.rope.theta = reader.Number("rope_theta", 10000.0);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const Json* found = reader.Find(key);
    if (found == nullptr) continue;
    if (!found->is_object()) return reader.Fail(fmt::format("`{}` is no object", key));
    JsonReader inner(*found, std::string(key) + ".");
    ReadScaling(inner, config.max_length, config);
    if (Status read = inner.status(); !read.ok()) reader.Fail(read.diagnostics()[0].message);
    return;
  }
}

void ReadDecoder(JsonReader& reader, ModelConfig& c) {
  c.flavor = "hf";
  c.dim = reader.Int("hidden_size");
  c.n_layers = reader.Int("num_hidden_layers");
  c.n_heads = reader.Int("num_attention_heads");
  c.n_kv_heads = reader.Int("num_key_value_heads", c.n_heads);
  c.ffn_dim = reader.Int("intermediate_size");
  c.vocab_size = reader.Int("vocab_size");
  c.max_length = reader.Int("max_position_embeddings", c.max_length);
  c.tied = reader.Bool("tie_word_embeddings", false);
  c.norm_eps = reader.Number("rms_norm_eps", 1e-6);
  CheckFixed(reader, {{"hidden_act", "silu"},
                      {"attention_bias", false},
                      {"mlp_bias", false},
                      {"use_sliding_window", false}});
  if (reader.Has("quantization_config"))
    reader.Fail("has `quantization_config`; weights that are quantized cannot be loaded");
  ReadRope(reader, c);
}

void ReadLlama(JsonReader& reader, ModelConfig& c) { c.head_dim = reader.Int("head_dim", 0); }

void ReadQwen(JsonReader& reader, ModelConfig& c) { c.head_dim = reader.Int("head_dim", 128); }

void ReadQwenMixture(JsonReader& reader, ModelConfig& c) {
  c.head_dim = reader.Int("head_dim", 0);
  c.moe.experts =
      reader.Has("num_experts") ? reader.Int("num_experts") : reader.Int("num_local_experts");
  c.moe.top_k = reader.Int("num_experts_per_tok");
  c.moe.ffn_dim = reader.Int("moe_intermediate_size");
  c.moe.normalize = reader.Bool("norm_topk_prob", false);
  CheckFixed(reader, {{"decoder_sparse_step", 1}});
  const Json* dense = reader.Find("mlp_only_layers");
  if (dense == nullptr) return;
  // Dense layers come first in Heddle's models.
  for (size_t i = 0; i < dense->size(); ++i) {
    if (!dense->is_array() || (*dense)[i] != i)
      return reader.Fail("`mlp_only_layers` are not the first layers");
  }
  c.moe.dense_layers = static_cast<int64_t>(dense->size());
}

void ReadDeepSeek(JsonReader& reader, ModelConfig& c) {
  c.n_kv_heads = c.n_heads;
  c.mla.q_rank = reader.Int("q_lora_rank", 0);
  c.mla.kv_rank = reader.Int("kv_lora_rank");
  c.mla.nope_dim = reader.Int("qk_nope_head_dim");
  c.mla.rope_dim = reader.Int("qk_rope_head_dim");
  c.mla.v_dim = reader.Int("v_head_dim");
  if (c.rope.scaling == RopeScaling::kLlama)
    reader.Fail("rotary embedding is scaled by `llama3`; DeepSeek's has yarn only");
  c.moe.experts = reader.Has("n_routed_experts") ? reader.Int("n_routed_experts")
                                                 : reader.Int("num_local_experts");
  c.moe.top_k = reader.Int("num_experts_per_tok");
  c.moe.ffn_dim = reader.Int("moe_intermediate_size");
  c.moe.shared_experts = reader.Int("n_shared_experts");
  c.moe.dense_layers = reader.Int("first_k_dense_replace");
  c.moe.score = RouterScore::kSigmoid;
  c.moe.normalize = reader.Bool("norm_topk_prob", true);
  c.moe.route_scale = reader.Number("routed_scaling_factor");
  c.moe.groups = reader.Int("n_group");
  c.moe.limited_groups = reader.Int("topk_group");
  c.moe.bias = true;
  CheckFixed(reader, {{"rope_interleave", true},
                      {"scoring_func", "sigmoid"},
                      {"topk_method", "noaux_tc"},
                      {"moe_layer_freq", 1}});
}

struct ModelType {
  std::string_view name;
  std::string_view family;
  void (*read)(JsonReader&, ModelConfig&);
};
constexpr ModelType kTypes[] = {{"llama", "llama3", ReadLlama},
                                {"qwen3", "qwen3", ReadQwen},
                                {"qwen3_moe", "qwen3", ReadQwenMixture},
                                {"deepseek_v3", "deepseek_v3", ReadDeepSeek}};

}  // namespace

Result<ModelConfig> ParseHfConfig(std::string_view text) {
  HEDDLE_TRY(Json object, ParseJsonObject(text));
  JsonReader reader(object);
  std::string type = reader.Text("model_type", "");
  std::vector<std::string_view> known;
  for (const ModelType& candidate : kTypes) {
    known.push_back(candidate.name);
    if (candidate.name != type) continue;
    ModelConfig config;
    for (const Family* family : Families()) {
      if (family->name == candidate.family) config.family = family;
    }
    ReadDecoder(reader, config);
    candidate.read(reader, config);
    HEDDLE_RETURN_IF_ERROR(reader.status());
    HEDDLE_RETURN_IF_ERROR(CheckConfig(config));
    return config;
  }
  HEDDLE_RETURN_IF_ERROR(reader.status());
  return Error(Diag::kUnknownModel, "`model_type` is `{}`{}; there are {}", type,
               NearestHint(type, known), Join(known, ", "));
}

}  // namespace heddle
