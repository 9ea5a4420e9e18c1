#include <cmath>

#include <nlohmann/json.hpp>

#include "heddle/hf/config.h"
#include "heddle/models/family.h"

namespace heddle {
namespace {

using OrderedJson = nlohmann::ordered_json;

Failure Refuse(std::string_view class_name, std::string_view what) {
  return Error(Diag::kModelSize, "transformers has no class for this model: {} has {}", class_name,
               what);
}

// As transformers had it before version 5, which reads it, too.
OrderedJson Scaling(const ModelConfig& c) {
  const RopeConfig& rope = c.rope;
  if (rope.scaling == RopeScaling::kNone) return nullptr;
  if (rope.scaling == RopeScaling::kLlama)
    return {{"rope_type", "llama3"},
            {"factor", rope.factor},
            {"low_freq_factor", rope.low_freq},
            {"high_freq_factor", rope.high_freq},
            {"original_max_position_embeddings", rope.original_length}};
  OrderedJson scaling = {{"rope_type", "yarn"},
                         {"factor", rope.factor},
                         {"beta_fast", rope.fast},
                         {"beta_slow", rope.slow},
                         {"attention_factor", rope.attention_factor},
                         {"original_max_position_embeddings", rope.original_length}};
  if (c.mla.kv_rank > 0) {
    scaling["mscale"] = c.mla.mscale;
    scaling["mscale_all_dim"] = c.mla.mscale;
  }
  return scaling;
}

OrderedJson Shared(const ModelConfig& c, std::string_view class_name, std::string_view type,
                   std::string_view dtype) {
  return {{"architectures", {class_name}},
          {"model_type", type},
          {"vocab_size", c.vocab_size},
          {"hidden_size", c.dim},
          {"intermediate_size", c.ffn_dim},
          {"num_hidden_layers", c.n_layers},
          {"num_attention_heads", c.n_heads},
          {"num_key_value_heads", c.n_kv_heads},
          {"hidden_act", "silu"},
          {"max_position_embeddings", c.max_length},
          {"rms_norm_eps", c.norm_eps},
          {"rope_theta", c.rope.theta},
          {"rope_scaling", Scaling(c)},
          {"tie_word_embeddings", c.tied},
          {"attention_bias", false},
          {"initializer_range", 0.02},
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr},
          {"torch_dtype", dtype}};
}

Result<OrderedJson> Llama(const ModelConfig& c, std::string_view dtype) {
  if (c.moe.experts > 0) return Refuse("LlamaForCausalLM", "no experts");
  OrderedJson json = Shared(c, "LlamaForCausalLM", "llama", dtype);
  json["head_dim"] = c.head_size();
  json["mlp_bias"] = false;
  return json;
}

Result<OrderedJson> Qwen(const ModelConfig& c, std::string_view dtype) {
  const MoeConfig& moe = c.moe;
  bool mixture = moe.experts > 0;
  OrderedJson json = mixture ? Shared(c, "Qwen3MoeForCausalLM", "qwen3_moe", dtype)
                             : Shared(c, "Qwen3ForCausalLM", "qwen3", dtype);
  json["head_dim"] = c.head_size();
  json["use_sliding_window"] = false;
  if (!mixture) return json;
  constexpr std::string_view kName = "Qwen3MoeForCausalLM";
  if (moe.score != RouterScore::kSoftmax) return Refuse(kName, "scores by softmax only");
  if (moe.bias) return Refuse(kName, "no bias of experts");
  if (moe.groups > 0) return Refuse(kName, "no groups of experts");
  if (moe.shared_experts > 0) return Refuse(kName, "no shared experts");
  if (moe.route_scale != 1.0) return Refuse(kName, "a route_scale of 1");
  json["num_experts"] = moe.experts;
  json["num_experts_per_tok"] = moe.top_k;
  json["moe_intermediate_size"] = moe.ffn_dim;
  json["norm_topk_prob"] = moe.normalize;
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = OrderedJson::array();
  for (int64_t layer = 0; layer < moe.dense_layers; ++layer)
    json["mlp_only_layers"].push_back(layer);
  return json;
}

Result<OrderedJson> DeepSeek(const ModelConfig& c, std::string_view dtype) {
  constexpr std::string_view kName = "DeepseekV3ForCausalLM";
  const MoeConfig& moe = c.moe;
  if (moe.experts == 0) return Refuse(kName, "experts");
  if (moe.score != RouterScore::kSigmoid) return Refuse(kName, "scores by sigmoid only");
  if (moe.groups > 1 && moe.group_score != GroupScore::kTopTwo)
    return Refuse(kName, "groups judged by their two best experts only");
  if (moe.experts < 2 * std::max<int64_t>(moe.groups, 1))
    return Refuse(kName, "at least two experts in a group");
  if (moe.shared_experts < 1) return Refuse(kName, "a shared expert");
  if (c.mla.norm_eps != 1e-6) return Refuse(kName, "a mla.norm_eps of 1e-6");
  if (c.rope.scaling == RopeScaling::kLlama) return Refuse(kName, "rotary scaling by yarn only");
  OrderedJson json = Shared(c, kName, "deepseek_v3", dtype);
  json["num_key_value_heads"] = c.n_heads;
  json["q_lora_rank"] = c.mla.q_rank > 0 ? OrderedJson(c.mla.q_rank) : OrderedJson(nullptr);
  json["kv_lora_rank"] = c.mla.kv_rank;
  json["qk_nope_head_dim"] = c.mla.nope_dim;
  json["qk_rope_head_dim"] = c.mla.rope_dim;
  json["v_head_dim"] = c.mla.v_dim;
  json["rope_interleave"] = true;
  json["n_routed_experts"] = moe.experts;
  json["num_experts_per_tok"] = moe.top_k;
  json["moe_intermediate_size"] = moe.ffn_dim;
  json["n_shared_experts"] = moe.shared_experts;
  json["first_k_dense_replace"] = moe.dense_layers;
  json["norm_topk_prob"] = moe.normalize;
  json["routed_scaling_factor"] = moe.route_scale;
  // One group of all experts is the same as none.
  json["n_group"] = std::max<int64_t>(moe.groups, 1);
  json["topk_group"] = std::max<int64_t>(moe.limited_groups, 1);
  json["num_nextn_predict_layers"] = 0;
  return json;
}

}  // namespace

Result<std::string> FormatHfConfig(const ModelConfig& c, std::string_view dtype) {
  Result<OrderedJson> json = Error(
      Diag::kBadChoice, "transformers has no class for models of family `{}`", c.family->name);
  if (c.family->name == "llama3") json = Llama(c, dtype);
  if (c.family->name == "qwen3") json = Qwen(c, dtype);
  if (c.family->name == "deepseek_v3") json = DeepSeek(c, dtype);
  if (!json.ok()) return std::move(json).failure();
  if (c.rope.scaling != RopeScaling::kYarn && c.rope.attention_factor != 1.0)
    return Refuse((*json)["architectures"][0].get<std::string>(),
                  "an attention_factor with yarn only");
  return json->dump(2) + "\n";
}

}  // namespace heddle
