#include "heddle/hf/names.h"

#include <ATen/ops/stack.h>

#include "heddle/models/family.h"

namespace heddle {
namespace {

struct Pair {
  std::string_view ours;
  std::string_view theirs;
};
constexpr Pair kOutside[] = {{"tok_embeddings.weight", "model.embed_tokens.weight"},
                             {"norm.weight", "model.norm.weight"},
                             {"output.weight", "lm_head.weight"}};
// Inside of a layer. `*` is the number of an expert.
constexpr Pair kInLayer[] = {
    {"attention_norm.weight", "input_layernorm.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"attention.wq.weight", "self_attn.q_proj.weight"},
    {"attention.wk.weight", "self_attn.k_proj.weight"},
    {"attention.wv.weight", "self_attn.v_proj.weight"},
    {"attention.wo.weight", "self_attn.o_proj.weight"},
    {"attention.k_norm.weight", "self_attn.k_norm.weight"},
    {"attention.wq_a.weight", "self_attn.q_a_proj.weight"},
    {"attention.wq_b.weight", "self_attn.q_b_proj.weight"},
    {"attention.wkv_a.weight", "self_attn.kv_a_proj_with_mqa.weight"},
    {"attention.wkv_b.weight", "self_attn.kv_b_proj.weight"},
    {"attention.kv_norm.weight", "self_attn.kv_a_layernorm.weight"},
    {"feed_forward.w1.weight", "mlp.gate_proj.weight"},
    {"feed_forward.w2.weight", "mlp.down_proj.weight"},
    {"feed_forward.w3.weight", "mlp.up_proj.weight"},
    {"moe.shared_experts.w1.weight", "mlp.shared_experts.gate_proj.weight"},
    {"moe.shared_experts.w2.weight", "mlp.shared_experts.down_proj.weight"},
    {"moe.shared_experts.w3.weight", "mlp.shared_experts.up_proj.weight"},
    {"moe.router.gate.weight", "mlp.gate.weight"},
    {"moe.expert_bias_E", "mlp.gate.e_score_correction_bias"},
    {"moe.routed_experts.inner_experts.w1_EFD", "mlp.experts.*.gate_proj.weight"},
    {"moe.routed_experts.inner_experts.w2_EDF", "mlp.experts.*.down_proj.weight"},
    {"moe.routed_experts.inner_experts.w3_EFD", "mlp.experts.*.up_proj.weight"},
};

std::string_view InLayer(const ModelConfig& config, std::string_view name) {
  // On every head of Qwen, on the latent of DeepSeek.
  if (name == "attention.q_norm.weight")
    return config.mla.kv_rank > 0 ? "self_attn.q_a_layernorm.weight" : "self_attn.q_norm.weight";
  for (const Pair& pair : kInLayer) {
    if (pair.ours == name) return pair.theirs;
  }
  HEDDLE_CHECK(false, "Hugging Face has no name for " + std::string(name));
  return {};
}

// Exchanges the last of `heads` x `rows` x `columns` rows: what was [rows, columns] within a head is [columns, rows].
at::Tensor Reordered(const at::Tensor& tensor, int64_t heads, bool pairs_to_halves) {
  int64_t half = tensor.size(0) / heads / 2;
  at::Tensor split = pairs_to_halves ? tensor.view({heads, half, 2, tensor.size(1)})
                                     : tensor.view({heads, 2, half, tensor.size(1)});
  return split.transpose(1, 2).reshape(tensor.sizes());
}

}  // namespace

HfWeight HfWeightOf(const ModelConfig& config, const std::string& name) {
  HfWeight weight;
  for (const Pair& pair : kOutside) {
    if (pair.ours == name) weight.names.emplace_back(pair.theirs);
  }
  if (!weight.names.empty()) return weight;
  size_t dot = name.find('.', 7);
  HEDDLE_CHECK(name.starts_with("layers.") && dot != std::string::npos,
               "Hugging Face has no name for " + name);
  std::string_view own = std::string_view(name).substr(dot + 1);
  std::string prefix = "model." + name.substr(0, dot + 1);
  std::string_view theirs = InLayer(config, own);
  size_t star = theirs.find('*');
  weight.stacked = star != std::string_view::npos;
  for (int64_t expert = 0; weight.stacked && expert < config.moe.experts; ++expert)
    weight.names.push_back(
        fmt::format("{}{}{}{}", prefix, theirs.substr(0, star), expert, theirs.substr(star + 1)));
  if (!weight.stacked) weight.names.push_back(prefix + std::string(theirs));
  if (config.family->name == "llama3") {
    if (own == "attention.wq.weight") weight.rotated_heads = config.n_heads;
    if (own == "attention.wk.weight") weight.rotated_heads = config.n_kv_heads;
  }
  return weight;
}

at::Tensor FromHf(const HfWeight& weight, const std::vector<at::Tensor>& tensors) {
  if (weight.stacked) return at::stack(tensors);
  if (weight.rotated_heads == 0) return tensors[0];
  return Reordered(tensors[0], weight.rotated_heads, /*pairs_to_halves=*/false);
}

std::vector<at::Tensor> ToHf(const HfWeight& weight, const at::Tensor& tensor) {
  if (weight.stacked) return tensor.unbind(0);
  if (weight.rotated_heads == 0) return {tensor};
  return {Reordered(tensor, weight.rotated_heads, /*pairs_to_halves=*/true)};
}

}  // namespace heddle
