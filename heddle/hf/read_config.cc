#include <cmath>
#include <variant>

#include "heddle/base/json_fields.h"
#include "heddle/base/text.h"
#include "heddle/hf/config.h"
#include "heddle/models/family.h"

namespace heddle {
namespace {

// A key that must have this value, if it is there: another would change what is computed.
struct Fixed {
  std::string_view key;
  std::variant<bool, double, std::string_view> value;
};

bool HasValue(JsonValue value, bool expected) {
  return value.is_bool() && value.boolean() == expected;
}
bool HasValue(JsonValue value, double expected) {
  return value.is_number() && value.number() == expected;
}
bool HasValue(JsonValue value, std::string_view expected) {
  return value.is_string() && value.string() == expected;
}

void CheckFixed(JsonFields& fields, std::initializer_list<Fixed> all) {
  for (const Fixed& fixed : all) {
    std::optional<JsonValue> value = fields.Find(fixed.key);
    auto good = [&](const auto& expected) { return HasValue(*value, expected); };
    if (!value || std::visit(good, fixed.value)) continue;
    const auto* text = std::get_if<std::string_view>(&fixed.value);
    auto format = [](const auto& expected) { return fmt::format("{}", expected); };
    fields.Wrong(fixed.key, "is {}; Heddle's models have {} only", Shown(*value),
                 text != nullptr ? Quoted(*text) : std::visit(format, fixed.value));
  }
}

int64_t Size(JsonFields& fields, std::string_view key, std::optional<int64_t> missing = {}) {
  return fields.Count(key, 0, INT64_MAX, missing);
}

// How YaRN sharpens attention where nothing says otherwise.
double Sharpening(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

void ReadYarn(JsonFields& fields, int64_t max_length, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  rope.scaling = RopeScaling::kYarn;
  rope.original_length = Size(fields, "original_max_position_embeddings", max_length);
  rope.factor = fields.NotNegative(
      "factor", static_cast<double>(max_length) /
                    static_cast<double>(std::max<int64_t>(rope.original_length, 1)));
  rope.fast = fields.NotNegative("beta_fast", 32.0);
  rope.slow = fields.NotNegative("beta_slow", 1.0);
  double mscale = fields.NotNegative("mscale", 0.0);
  double all_dims = fields.NotNegative("mscale_all_dim", 0.0);
  double usual = mscale > 0 && all_dims > 0
                     ? Sharpening(rope.factor, mscale) / Sharpening(rope.factor, all_dims)
                     : Sharpening(rope.factor, 1.0);
  rope.attention_factor = fields.NotNegative("attention_factor", usual);
  config.mla.mscale = all_dims;
  CheckFixed(fields, {{"truncate", true}});
}

void ReadScaling(JsonFields& fields, int64_t max_length, ModelConfig& config) {
  std::string kind = fields.Text("rope_type", fields.Text("type", "default"));
  CheckFixed(fields, {{"partial_rotary_factor", 1.0}});
  config.rope.theta = fields.NotNegative("rope_theta", config.rope.theta);
  if (kind == "default") return;
  if (kind == "yarn") return ReadYarn(fields, max_length, config);
  if (kind != "llama3") {
    fields.Wrong(fields.Has("rope_type") ? "rope_type" : "type",
                 "is `{}`; there are default, llama3, yarn", kind);
    return;
  }
  config.rope.scaling = RopeScaling::kLlama;
  config.rope.factor = fields.NotNegative("factor");
  config.rope.low_freq = fields.NotNegative("low_freq_factor");
  config.rope.high_freq = fields.NotNegative("high_freq_factor");
  config.rope.original_length = Size(fields, "original_max_position_embeddings", max_length);
}

// In `rope_parameters` since transformers 5, in `rope_theta` and `rope_scaling` before.
void ReadRope(JsonFields& fields, ModelConfig& config) {
  config.rope.theta = fields.NotNegative("rope_theta", 10000.0);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!fields.Has(key)) continue;
    JsonFields scaling = fields.Object(key);
    ReadScaling(scaling, config.max_length, config);
    return;
  }
}

void ReadDecoder(JsonFields& fields, ModelConfig& c) {
  c.flavor = "hf";
  c.dim = Size(fields, "hidden_size");
  c.n_layers = Size(fields, "num_hidden_layers");
  c.n_heads = Size(fields, "num_attention_heads");
  c.n_kv_heads = Size(fields, "num_key_value_heads", c.n_heads);
  c.ffn_dim = Size(fields, "intermediate_size");
  c.vocab_size = Size(fields, "vocab_size");
  c.max_length = Size(fields, "max_position_embeddings", c.max_length);
  c.tied = fields.Flag("tie_word_embeddings", false);
  c.norm_eps = fields.NotNegative("rms_norm_eps", 1e-6);
  CheckFixed(fields, {{"hidden_act", "silu"},
                      {"attention_bias", false},
                      {"mlp_bias", false},
                      {"use_sliding_window", false}});
  if (fields.Has("quantization_config"))
    fields.Wrong("quantization_config", "is present; weights that are quantized cannot be loaded");
  ReadRope(fields, c);
}

void ReadLlama(JsonFields& fields, ModelConfig& c) { c.head_dim = Size(fields, "head_dim", 0); }

void ReadQwen(JsonFields& fields, ModelConfig& c) { c.head_dim = Size(fields, "head_dim", 128); }

void ReadQwenMixture(JsonFields& fields, ModelConfig& c) {
  c.head_dim = Size(fields, "head_dim", 0);
  c.moe.experts =
      fields.Has("num_experts") ? Size(fields, "num_experts") : Size(fields, "num_local_experts");
  c.moe.top_k = Size(fields, "num_experts_per_tok");
  c.moe.ffn_dim = Size(fields, "moe_intermediate_size");
  c.moe.normalize = fields.Flag("norm_topk_prob", false);
  CheckFixed(fields, {{"decoder_sparse_step", 1.0}});
  if (!fields.Has("mlp_only_layers")) return;
  std::vector<int64_t> dense = fields.Counts("mlp_only_layers");
  c.moe.dense_layers = static_cast<int64_t>(dense.size());
  // Dense layers come first in Heddle's models.
  for (int64_t i = 0; i < c.moe.dense_layers; ++i) {
    if (dense[static_cast<size_t>(i)] != i)
      return fields.Wrong("mlp_only_layers",
                          "has layer {} at position {}; only the first layers "
                          "can be dense",
                          dense[static_cast<size_t>(i)], i);
  }
}

void ReadDeepSeek(JsonFields& fields, ModelConfig& c) {
  c.n_kv_heads = c.n_heads;
  c.mla.q_rank = Size(fields, "q_lora_rank", 0);
  c.mla.kv_rank = Size(fields, "kv_lora_rank");
  c.mla.nope_dim = Size(fields, "qk_nope_head_dim");
  c.mla.rope_dim = Size(fields, "qk_rope_head_dim");
  c.mla.v_dim = Size(fields, "v_head_dim");
  if (c.rope.scaling == RopeScaling::kLlama)
    fields.Wrong(fields.Has("rope_parameters") ? "rope_parameters" : "rope_scaling",
                 "has type `llama3`; DeepSeek's has yarn only");
  c.moe.experts = fields.Has("n_routed_experts") ? Size(fields, "n_routed_experts")
                                                 : Size(fields, "num_local_experts");
  c.moe.top_k = Size(fields, "num_experts_per_tok");
  c.moe.ffn_dim = Size(fields, "moe_intermediate_size");
  c.moe.shared_experts = Size(fields, "n_shared_experts");
  c.moe.dense_layers = Size(fields, "first_k_dense_replace");
  c.moe.score = RouterScore::kSigmoid;
  c.moe.normalize = fields.Flag("norm_topk_prob", true);
  c.moe.route_scale = fields.NotNegative("routed_scaling_factor");
  c.moe.groups = Size(fields, "n_group");
  c.moe.limited_groups = Size(fields, "topk_group");
  c.moe.bias = true;
  CheckFixed(fields, {{"rope_interleave", true},
                      {"scoring_func", "sigmoid"},
                      {"topk_method", "noaux_tc"},
                      {"moe_layer_freq", 1.0}});
}

struct ModelType {
  std::string_view name;
  std::string_view family;
  void (*read)(JsonFields&, ModelConfig&);
};
constexpr ModelType kTypes[] = {{"llama", "llama3", ReadLlama},
                                {"qwen3", "qwen3", ReadQwen},
                                {"qwen3_moe", "qwen3", ReadQwenMixture},
                                {"deepseek_v3", "deepseek_v3", ReadDeepSeek}};

}  // namespace

Result<ModelConfig> ParseHfConfig(std::string_view text) {
  HEDDLE_TRY(JsonDocument document, JsonDocument::Parse(std::string(text), "", Diag::kFileRead));
  JsonMistakes mistakes(document, Diag::kFileRead);
  JsonFields fields(document.root(), mistakes, JsonFields::Nulls::kMissing);
  std::string type = fields.Text("model_type", "");
  std::vector<std::string_view> known;
  for (const ModelType& candidate : kTypes) {
    known.push_back(candidate.name);
    if (candidate.name != type) continue;
    ModelConfig config;
    for (const Family* family : Families()) {
      if (family->name == candidate.family) config.family = family;
    }
    ReadDecoder(fields, config);
    candidate.read(fields, config);
    if (!mistakes.empty()) return mistakes.failure();
    HEDDLE_RETURN_IF_ERROR(CheckConfig(config));
    return config;
  }
  if (!mistakes.empty()) return mistakes.failure();
  return Error(Diag::kUnknownModel, "`model_type` is `{}`{}; there are {}", type,
               NearestHint(type, known), Join(known, ", "));
}

}  // namespace heddle
