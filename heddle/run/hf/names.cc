#include "heddle/run/hf/names.h"

#include <ATen/ops/empty.h>
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

// The names of the family come before those of all.
const HfName& Find(const ModelConfig& config, std::string_view name,
                   std::span<const HfName> common) {
  for (std::span<const HfName> names : {config.family->hf.names, common}) {
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

// The rows of a stack of experts are in its second dimension.
size_t RowDim(size_t rank) { return rank == 3 ? 1 : 0; }

// Returns the part of a tensor that is the weight: a view.
at::Tensor OwnPart(const HfWeight& weight, const at::Tensor& theirs) {
  at::Tensor own = weight.columns ? theirs.unsqueeze(-1) : theirs;
  if (weight.transposed) own = own.transpose(-2, -1);
  const HfRows& rows = weight.rows;
  if (rows.all == 0) return own;
  int64_t end = rows.begin + (rows.count - 1) * rows.step + 1;
  return own.slice(static_cast<int64_t>(RowDim(own.sizes().size())), rows.begin, end, rows.step);
}

}  // namespace

HfWeight HfWeightOf(const ModelConfig& config, const std::string& name) {
  HfWeight weight;
  constexpr std::string_view kLayers = "layers.";
  if (!name.starts_with(kLayers)) {
    weight.names.emplace_back(Find(config, name, kOutside).theirs);
    return weight;
  }
  size_t dot = name.find('.', kLayers.size());
  HEDDLE_CHECK(dot != std::string::npos, "Hugging Face has no name for " + name);
  std::string_view own = std::string_view(name).substr(dot + 1);
  std::string prefix =
      std::string(config.family->hf.layers) + name.substr(kLayers.size(), dot + 1 - kLayers.size());
  const HfName& pair = Find(config, own, kInLayer);
  std::string_view theirs = pair.theirs;
  size_t star = theirs.find('*');
  weight.stacked = star != std::string_view::npos;
  for (int64_t expert = 0; weight.stacked && expert < config.moe.experts; ++expert)
    weight.names.push_back(
        fmt::format("{}{}{}{}", prefix, theirs.substr(0, star), expert, theirs.substr(star + 1)));
  if (!weight.stacked) weight.names.push_back(prefix + std::string(theirs));
  if (pair.rotated_heads != nullptr) weight.rotated_heads = config.*pair.rotated_heads;
  if (pair.rows != nullptr) weight.rows = pair.rows(config);
  weight.transposed = pair.transposed;
  weight.columns = pair.columns;
  return weight;
}

std::vector<int64_t> HfShape(const HfWeight& weight, std::vector<int64_t> shape) {
  if (weight.stacked) shape.erase(shape.begin());
  if (weight.rows.all > 0) shape[RowDim(shape.size())] = weight.rows.all;
  if (weight.transposed) std::swap(shape[shape.size() - 2], shape[shape.size() - 1]);
  if (weight.columns) shape.pop_back();
  return shape;
}

at::Tensor FromHf(const HfWeight& weight, const std::vector<at::Tensor>& tensors) {
  if (weight.stacked) return at::stack(tensors);
  at::Tensor own = OwnPart(weight, tensors[0]).contiguous();
  if (weight.rotated_heads == 0) return own;
  return Reordered(own, weight.rotated_heads, /*pairs_to_halves=*/false);
}

void ToHf(const HfWeight& weight, const at::Tensor& tensor, std::vector<at::Tensor>& theirs) {
  if (weight.stacked) {
    theirs = tensor.unbind(0);
    return;
  }
  if (theirs.empty()) theirs = {at::empty(HfShape(weight, tensor.sizes().vec()), tensor.options())};
  OwnPart(weight, theirs[0])
      .copy_(weight.rotated_heads == 0
                 ? tensor
                 : Reordered(tensor, weight.rotated_heads, /*pairs_to_halves=*/true));
}

}  // namespace heddle::run
