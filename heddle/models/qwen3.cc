// Qwen 3: as Llama, with a norm on every query and key head, rotary embedding of halves, and optionally experts.
#include <ATen/ops/add.h>

#include "heddle/capture/scope.h"
#include "heddle/models/model.h"

namespace heddle {
namespace {

at::Tensor Attention(const Weights& weights, const ModelConfig& c, const at::Tensor& x) {
  ScopeGuard scope("attention");
  at::Tensor cosines = weights.Buffer("rope_cos");
  at::Tensor sines = weights.Buffer("rope_sin");
  auto heads = [&](std::string_view name) {
    return Linear(weights, name, x).view({x.size(0), x.size(1), -1, c.head_size()});
  };
  at::Tensor q = heads("wq");
  at::Tensor k = heads("wk");
  at::Tensor v = heads("wv");
  q = RotateHalves(RmsNorm(weights, "q_norm", q, c.norm_eps), cosines, sines).transpose(1, 2);
  k = RotateHalves(RmsNorm(weights, "k_norm", k, c.norm_eps), cosines, sines).transpose(1, 2);
  at::Tensor out = Attend(q, k, v.transpose(1, 2), std::nullopt, weights.numerics());
  return Linear(weights, "wo", out.transpose(1, 2).reshape({x.size(0), x.size(1), -1}));
}

}  // namespace

FamilyParts MakeQwen3(const ModelConfig& config, const BatchConfig& batch) {
  ParamList params;
  AddEmbedding(params, config);
  int64_t size = config.head_size();
  for (int64_t layer = 0; layer < config.n_layers; ++layer) {
    std::string unit = BlockUnit(layer);
    AddAttention(params, config, unit);
    params.Add(unit + ".attention.q_norm.weight", {size}, unit);
    params.Add(unit + ".attention.k_norm.weight", {size}, unit);
    if (config.is_moe_layer(layer)) {
      AddMoe(params, unit + ".moe", config, unit);
    } else {
      AddFeedForward(params, unit + ".feed_forward", config.dim, config.ffn_dim, unit);
    }
    params.Add(unit + ".attention_norm.weight", {config.dim}, unit);
    params.Add(unit + ".ffn_norm.weight", {config.dim}, unit);
  }
  AddOutput(params, config);
  FamilyParts parts;
  parts.params = params.Take();
  parts.buffers = {{"rope_cos", InputRole::kBuffer, DType::kF32, {batch.seq_len, size}},
                   {"rope_sin", InputRole::kBuffer, DType::kF32, {batch.seq_len, size}}};
  parts.logits = [config](const Weights& weights, const at::Tensor& tokens) {
    return Decoder(
        weights, config, tokens, [&](const Weights& w, const at::Tensor& x, int64_t layer) {
          at::Tensor h =
              at::add(x, Attention(w, config, RmsNorm(w, "attention_norm", x, config.norm_eps)));
          at::Tensor normed = RmsNorm(w, "ffn_norm", h, config.norm_eps);
          return at::add(h, config.is_moe_layer(layer) ? Moe(w, config, normed, std::nullopt)
                                                       : FeedForward(w, "feed_forward", normed));
        });
  };
  return parts;
}

}  // namespace heddle
