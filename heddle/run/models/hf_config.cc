#include "heddle/run/models/hf_config.h"

#include <algorithm>
#include <cmath>

namespace heddle::run {
namespace {

bool HasValue(JsonValue value, bool expected) {
  return value.is_bool() && value.boolean() == expected;
}
bool HasValue(JsonValue value, int64_t expected) {
  return value.is_number() && value.number() == static_cast<double>(expected);
}
bool HasValue(JsonValue value, double expected) {
  return value.is_number() && value.number() == expected;
}
bool HasValue(JsonValue value, std::string_view expected) {
  return value.is_string() && value.string() == expected;
}

nlohmann::ordered_json ToJson(const HfConfig::Scalar& value) {
  return std::visit([](auto one) { return nlohmann::ordered_json(one); }, value);
}

// YaRN's default attention factor.
double Sharpening(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

}  // namespace

std::optional<JsonValue> HfConfig::Find(const char* key) {
  return reading() ? fields_->Find(key) : std::nullopt;
}

void HfConfig::Int(const char* key, int64_t& value, std::optional<int64_t> missing) {
  if (!reading()) return Write(key, value);
  value = fields_->Count(key, 0, INT64_MAX, missing);
}

void HfConfig::Number(const char* key, double& value, std::optional<double> missing) {
  if (!reading()) return Write(key, value);
  value = fields_->NotNegative(key, missing);
}

void HfConfig::Bool(const char* key, bool& value, bool missing) {
  if (!reading()) return Write(key, value);
  value = fields_->Flag(key, missing);
}

void HfConfig::Window(const char* key, int64_t& value, int64_t missing) {
  if (!reading()) return Write(key, value > 0 ? nlohmann::ordered_json(value) : nullptr);
  // Int cannot tell null from missing.
  bool given = std::ranges::any_of(fields_->fields(), [&](auto& f) { return f.first == key; });
  Int(key, value, given ? 0 : missing);
}

void HfConfig::Expect(const char* key, const Scalar& value) {
  std::optional<JsonValue> found = Find(key);
  auto has = [&](const auto& expected) { return HasValue(*found, expected); };
  if (found && !std::visit(has, value))
    Wrong(key, "is {}; Heddle's models support {} only", Shown(*found), ToJson(value).dump());
}

void HfConfig::Fixed(const char* key, const Scalar& value) {
  Expect(key, value);
  Write(key, ToJson(value));
}

void HfConfig::Require(bool fits, std::string_view what) {
  if (!reading() && !fits && mistake_.empty())
    mistake_ =
        fmt::format("transformers has no class for this model: {} has {}", class_name_, what);
}

void HfConfig::ReadYarn(ModelConfig& config) {
  RopeConfig& rope = config.rope;
  rope.scaling = RopeScaling::kYarn;
  Int("original_max_position_embeddings", rope.original_length, config.max_length);
  Number("factor", rope.factor,
         static_cast<double>(config.max_length) /
             static_cast<double>(std::max<int64_t>(rope.original_length, 1)));
  Number("beta_fast", rope.fast, 32.0);
  Number("beta_slow", rope.slow, 1.0);
  double mscale = 0;
  Number("mscale", mscale, 0.0);
  Number("mscale_all_dim", config.mla.mscale, 0.0);
  double usual = mscale > 0 && config.mla.mscale > 0
                     ? Sharpening(rope.factor, mscale) / Sharpening(rope.factor, config.mla.mscale)
                     : Sharpening(rope.factor, 1.0);
  Number("attention_factor", rope.attention_factor, usual);
  Bool("truncate", rope.truncate, true);
}

void HfConfig::ReadScaling(ModelConfig& config) {
  std::string kind = Text("rope_type", Text("type", "default"));
  Expect("partial_rotary_factor", 1.0);
  Number("rope_theta", config.rope.theta, config.rope.theta);
  if (kind == "default") return;
  if (kind == "yarn") return ReadYarn(config);
  if (kind == "linear") {
    config.rope.scaling = RopeScaling::kLinear;
    return Number("factor", config.rope.factor);
  }
  if (kind != "llama3")
    return Wrong(Find("rope_type") ? "rope_type" : "type",
                 "is `{}`, expected default, linear, llama3 or yarn", kind);
  config.rope.scaling = RopeScaling::kLlama;
  Number("factor", config.rope.factor);
  Number("low_freq_factor", config.rope.low_freq);
  Number("high_freq_factor", config.rope.high_freq);
  Int("original_max_position_embeddings", config.rope.original_length, config.max_length);
}

// transformers 5 has parameters for each type of layer.
void HfConfig::ReadLayerRope(ModelConfig& config) {
  JsonFields outer = *fields_;
  if (Find("sliding_attention")) {
    fields_ = outer.Object("sliding_attention");
    Number("rope_theta", config.rope.local_theta, config.rope.local_theta);
    Expect("rope_type", "default");
    fields_ = outer;
  }
  if (!Find("full_attention")) return ReadScaling(config);
  fields_ = outer.Object("full_attention");
  ReadScaling(config);
}

// transformers 5 uses `rope_parameters`; older versions use `rope_theta` and `rope_scaling`.
void HfConfig::ReadRope(ModelConfig& config, const HfFields& common) {
  Number("rope_theta", config.rope.theta, common.rope_theta);
  if (common.local_theta > 0)
    Number("rope_local_base_freq", config.rope.local_theta, common.local_theta);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!Find(key)) continue;
    JsonFields outer = *std::exchange(fields_, fields_->Object(key));
    common.local_theta > 0 ? ReadLayerRope(config) : ReadScaling(config);
    fields_ = std::move(outer);
    return;
  }
}

// Writes the form of transformers 4, which later versions read, too.
void HfConfig::WriteRope(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  Require(rope.scaling == RopeScaling::kYarn || rope.attention_factor == 1.0,
          "an attention_factor with yarn only");
  nlohmann::ordered_json scaling;
  if (rope.scaling == RopeScaling::kLlama)
    scaling = {{"rope_type", "llama3"},
               {"factor", rope.factor},
               {"low_freq_factor", rope.low_freq},
               {"high_freq_factor", rope.high_freq},
               {"original_max_position_embeddings", rope.original_length}};
  if (rope.scaling == RopeScaling::kLinear)
    scaling = {{"rope_type", "linear"}, {"factor", rope.factor}};
  if (rope.scaling == RopeScaling::kYarn)
    scaling = {{"rope_type", "yarn"},
               {"factor", rope.factor},
               {"beta_fast", rope.fast},
               {"beta_slow", rope.slow},
               {"truncate", rope.truncate},
               {"attention_factor", rope.attention_factor},
               {"original_max_position_embeddings", rope.original_length}};
  if (rope.scaling == RopeScaling::kYarn && config.mla.kv_rank > 0) {
    scaling["mscale"] = config.mla.mscale;
    scaling["mscale_all_dim"] = config.mla.mscale;
  }
  Write("rope_theta", rope.theta);
  if (rope.local_theta > 0) Write("rope_local_base_freq", rope.local_theta);
  Write("rope_scaling", scaling);
}

// The layers whose number, from 1 on, is a multiple have no window.
void HfConfig::LayerTypes(ModelConfig& c, const HfFields& common) {
  auto name = [](bool local) { return local ? "sliding_attention" : "full_attention"; };
  Window("sliding_window", c.window, common.window);
  if (!reading()) {
    Require(c.window > 0 || c.global_every == 1, "a sliding window");
    auto types = nlohmann::ordered_json::array();
    for (int64_t layer = 0; layer < c.n_layers; ++layer) types.push_back(name(c.is_local(layer)));
    return Write("layer_types", types);
  }
  Int("sliding_window_pattern", c.global_every, common.global_every);
  std::optional<JsonValue> given = Find("layer_types");
  if (!given) return;
  if (!given->is_array()) return Wrong("layer_types", "is {}, expected a list", Shown(*given));
  c.global_every = 0;
  int64_t layer = 0;
  for (JsonValue type : given->items()) {
    ++layer;
    bool global = HasValue(type, std::string_view(name(false)));
    if (global && c.global_every == 0) c.global_every = layer;
    if (!HasValue(type, std::string_view(name(c.is_local(layer - 1)))))
      return Wrong("layer_types",
                   "has {} as number {}; Heddle's models have full_attention in every Nth layer, "
                   "and sliding_attention in the others",
                   Shown(type), layer);
  }
  if (layer != c.n_layers) Wrong("layer_types", "has {} layers, not {}", layer, c.n_layers);
}

void HfConfig::Softcaps(ModelConfig& c) {
  auto cap = [&](const char* key, double& value, double missing) {
    if (!reading()) return Write(key, value > 0 ? nlohmann::ordered_json(value) : nullptr);
    bool given = std::ranges::any_of(fields_->fields(), [&](auto& f) { return f.first == key; });
    Number(key, value, given ? 0 : missing);
  };
  cap("attn_logit_softcapping", c.attention_softcap, 50);
  cap("final_logit_softcapping", c.logit_softcap, 30);
}

void HfConfig::Plain(const ModelConfig& c, const HfFields& common) {
  if (!common.softcaps) {
    Require(c.attention_softcap == 0, "no softcap of attention");
    Require(c.logit_softcap == 0, "no softcap of logits");
  }
  if (!common.query_scalar) Require(c.query_scalar == 0, "scores scaled by the head size only");
  if (common.global_every == 0) Require(c.window == 0 || c.global_every == 0, "one type of layers");
  if (std::optional<JsonValue> quantized = Find("quantization_config")) {
    std::optional<JsonValue> method = quantized->Find("quant_method");
    bool mxfp4 = method && HasValue(*method, std::string_view("mxfp4"));
    Wrong("quantization_config", "is given; Heddle cannot load {} weights{}",
          mxfp4 ? "MXFP4" : "quantized",
          mxfp4
              ? "; load them in transformers with Mxfp4Config(dequantize=True), and save the model"
              : "");
  }
  Write("initializer_range", 0.02);
  Write("bos_token_id", nullptr);
  Write("eos_token_id", nullptr);
  Write("pad_token_id", nullptr);
}

void HfConfig::Decoder(ModelConfig& c, const HfFields& common) {
  if (!common.decoder) return;
  Int("vocab_size", c.vocab_size);
  Int("hidden_size", c.dim);
  Int("intermediate_size", c.ffn_dim);
  Int("num_hidden_layers", c.n_layers);
  Int("num_attention_heads", c.n_heads);
  Int("num_key_value_heads", c.n_kv_heads, common.kv_heads > 0 ? common.kv_heads : c.n_heads);
  Fixed(common.activation_key, common.activation);
  Int("max_position_embeddings", c.max_length, c.max_length);
  Number("rms_norm_eps", c.norm_eps, common.norm_eps);
  reading() ? ReadRope(c, common) : WriteRope(c);
  Bool("tie_word_embeddings", c.tied, common.tied);
  Fixed("attention_bias", common.attention_bias);
  Expect("mlp_bias", false);
  Expect("use_sliding_window", false);
  if (common.softcaps) Softcaps(c);
  if (common.global_every > 0) LayerTypes(c, common);
  Plain(c, common);
}

void RequireSoftmaxMixture(HfConfig& file, const MoeConfig& moe) {
  file.Require(moe.score == RouterScore::kSoftmax, "scores by softmax only");
  file.Require(!moe.bias, "no bias of experts");
  file.Require(moe.groups == 0, "no groups of experts");
  file.Require(moe.shared_experts == 0, "no shared experts");
  file.Require(moe.route_scale == 1.0, "a route_scale of 1");
}

Status HfConfig::status() {
  if (reading() && !mistakes_->empty()) return mistakes_->failure();
  if (!mistake_.empty()) return Error(Diag::kModelSize, "{}", mistake_);
  return Done{};
}

}  // namespace heddle::run
