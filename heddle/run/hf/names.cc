#include "heddle/run/hf/names.h"

#include <ATen/ops/stack.h>

#include "heddle/run/models/family.h"

namespace heddle::run {
namespace {

// Names that the classes of all decoders share.
constexpr HfName kOutside[] = {{"tok_embeddings.weight", "model.embed_tokens.weight"},
                               {"norm.weight", "model.norm.weight"},
                               {"output.weight", "lm_head.weight"}};
constexpr HfName kInLayer[] = {
    {"norm.weight", "model.norm.weight"},
    {"attention_norm.weight", "input_layernorm.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"attention.wq.weight", "self_attn.q_proj.weight"},
    {"attention.wk.weight", "self_attn.k_proj.weight"},
    {"attention.wv.weight", "self_attn.v_proj.weight"},
    {"attention.wo.weight", "self_attn.o_proj.weight"},
    {"feed_forward.w1.weight", "mlp.gate_proj.weight"},
    {"feed_forward.w2.weight", "mlp.down_proj.weight"},
    {"feed_forward.w3.weight", "mlp.up_proj.weight"},
    {"moe.shared_experts.w1.weight", "mlp.shared_experts.gate_proj.weight"},
    {"moe.shared_experts.w2.weight", "mlp.shared_experts.down_proj.weight"},
    {"moe.shared_experts.w3.weight", "mlp.shared_experts.up_proj.weight"},
    {"moe.router.gate.weight", "mlp.gate.weight"},
    {"moe.routed_experts.inner_experts.w1_EFD", "mlp.experts.*.gate_proj.weight"},
    {"moe.routed_experts.inner_experts.w2_EDF", "mlp.experts.*.down_proj.weight"},
    {"moe.routed_experts.inner_experts.w3_EFD", "mlp.experts.*.up_proj.weight"},
};

const HfName& InLayer(const ModelConfig& config, std::string_view name) {
  for (std::span<const HfName> names :
       {config.family->hf.names, std::span<const HfName>(kInLayer)}) {
    for (const HfName& pair : names) {
      if (pair.ours == name) return pair;
    }
  }
  HEDDLE_CHECK(false, "Hugging Face has no name for " + std::string(name));
}

// Within each head, transposes rows of shape [half, 2] (rotated pairs) to [2, half] (halves), or
// back.
at::Tensor Reordered(const at::Tensor& tensor, int64_t heads, bool pairs_to_halves) {
  int64_t half = tensor.size(0) / heads / 2;
  at::Tensor split = pairs_to_halves ? tensor.view({heads, half, 2, tensor.size(1)})
                                     : tensor.view({heads, 2, half, tensor.size(1)});
  return split.transpose(1, 2).reshape(tensor.sizes());
}

}  // namespace

HfWeight HfWeightOf(const ModelConfig& config, const std::string& name) {
  HfWeight weight;
  for (const HfName& pair : kOutside) {
    if (pair.ours == name) weight.names.emplace_back(pair.theirs);
  }
  if (!weight.names.empty()) return weight;
  size_t dot = name.find('.', 7);
  HEDDLE_CHECK(name.starts_with("layers.") && dot != std::string::npos,
               "Hugging Face has no name for " + name);
  std::string_view own = std::string_view(name).substr(dot + 1);
  std::string prefix = "model." + name.substr(0, dot + 1);
  const HfName& pair = InLayer(config, own);
  std::string_view theirs = pair.theirs;
  size_t star = theirs.find('*');
  weight.stacked = star != std::string_view::npos;
  for (int64_t expert = 0; weight.stacked && expert < config.moe.experts; ++expert)
    weight.names.push_back(
        fmt::format("{}{}{}{}", prefix, theirs.substr(0, star), expert, theirs.substr(star + 1)));
  if (!weight.stacked) weight.names.push_back(prefix + std::string(theirs));
  if (pair.rotated_heads != nullptr) weight.rotated_heads = config.*pair.rotated_heads;
  if (pair.rows != nullptr) weight.rows = pair.rows(config);
  return weight;
}

at::Tensor FromHf(const HfWeight& weight, const std::vector<at::Tensor>& tensors) {
  if (weight.stacked) return at::stack(tensors);
  at::Tensor own = tensors[0];
  if (weight.rows.all > 0) own = own.narrow(0, weight.rows.begin, weight.rows.count).contiguous();
  if (weight.rotated_heads == 0) return own;
  return Reordered(own, weight.rotated_heads, /*pairs_to_halves=*/false);
}

std::vector<at::Tensor> ToHf(const HfWeight& weight, const at::Tensor& tensor) {
  if (weight.stacked) return tensor.unbind(0);
  if (weight.rotated_heads == 0) return {tensor};
  return {Reordered(tensor, weight.rotated_heads, /*pairs_to_halves=*/true)};
}

}  // namespace heddle::run
