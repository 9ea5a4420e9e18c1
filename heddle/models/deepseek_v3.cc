// DeepSeek V3: multi-head latent attention (keys and values from a narrow latent), routed and shared experts.
#include <cmath>

#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>

#include "heddle/capture/scope.h"
#include "heddle/models/model.h"

namespace heddle {
namespace {

at::Tensor Attention(const Weights& weights, const ModelConfig& c, const at::Tensor& x) {
  ScopeGuard scope("attention");
  const MlaConfig& mla = c.mla;
  int64_t batch = x.size(0);
  int64_t positions = x.size(1);
  at::Tensor rotations = weights.Buffer("rope");
  at::Tensor q = mla.q_rank == 0
                     ? Linear(weights, "wq", x)
                     : Linear(weights, "wq_b",
                              RmsNorm(weights, "q_norm", Linear(weights, "wq_a", x), c.norm_eps));
  q = q.view({batch, positions, -1, mla.nope_dim + mla.rope_dim});
  std::vector<at::Tensor> q_parts = q.split_with_sizes({mla.nope_dim, mla.rope_dim}, -1);
  q = at::cat({q_parts[0], RotatePairs(q_parts[1], rotations)}, -1);

  std::vector<at::Tensor> latent =
      Linear(weights, "wkv_a", x).split_with_sizes({mla.kv_rank, mla.rope_dim}, -1);
  // One rotated part, shared by all heads.
  at::Tensor k_rope = RotatePairs(latent[1].unsqueeze(2), rotations);
  at::Tensor kv = Linear(weights, "wkv_b", RmsNorm(weights, "kv_norm", latent[0], c.norm_eps));
  kv = kv.view({batch, positions, -1, mla.nope_dim + mla.v_dim});
  std::vector<at::Tensor> kv_parts = kv.split_with_sizes({mla.nope_dim, mla.v_dim}, -1);
  at::Tensor k = at::cat({kv_parts[0], k_rope.expand({-1, -1, q.size(2), -1})}, -1);

  double stretch = 0.1 * mla.mscale * std::log(c.rope_scaling) + 1.0;
  double scale =
      std::pow(static_cast<double>(mla.nope_dim + mla.rope_dim), -0.5) * stretch * stretch;
  q = q.transpose(1, 2);
  k = k.transpose(1, 2);
  at::Tensor out = Attend(q, k, kv_parts[1].transpose(1, 2), scale, weights.numerics());
  return Linear(weights, "wo", out.transpose(1, 2).reshape({batch, positions, -1}));
}

void AddAttention(ParamList& params, const std::string& prefix, const ModelConfig& c,
                  const std::string& unit) {
  const MlaConfig& mla = c.mla;
  int64_t q_size = c.n_heads * (mla.nope_dim + mla.rope_dim);
  if (mla.q_rank == 0) {
    params.Add(prefix + ".wq.weight", {q_size, c.dim}, unit);
  } else {
    params.Add(prefix + ".wq_a.weight", {mla.q_rank, c.dim}, unit);
    params.Add(prefix + ".q_norm.weight", {mla.q_rank}, unit);
    params.Add(prefix + ".wq_b.weight", {q_size, mla.q_rank}, unit);
  }
  params.Add(prefix + ".wkv_a.weight", {mla.kv_rank + mla.rope_dim, c.dim}, unit);
  params.Add(prefix + ".kv_norm.weight", {mla.kv_rank}, unit);
  params.Add(prefix + ".wkv_b.weight", {c.n_heads * (mla.nope_dim + mla.v_dim), mla.kv_rank}, unit);
  params.Add(prefix + ".wo.weight", {c.dim, c.n_heads * mla.v_dim}, unit);
}

}  // namespace

FamilyParts MakeDeepSeekV3(const ModelConfig& config, const BatchConfig& batch) {
  ParamList params;
  FamilyParts parts;
  parts.buffers.push_back(
      {"rope", InputRole::kBuffer, DType::kC64, {batch.seq_len, config.mla.rope_dim / 2}});
  AddEmbedding(params, config);
  for (int64_t layer = 0; layer < config.n_layers; ++layer) {
    std::string unit = BlockUnit(layer);
    AddAttention(params, unit + ".attention", config, unit);
    params.Add(unit + ".attention_norm.weight", {config.dim}, unit);
    params.Add(unit + ".ffn_norm.weight", {config.dim}, unit);
    if (config.is_moe_layer(layer)) {
      AddMoe(params, unit + ".moe", config, unit);
      if (config.moe.bias)
        parts.buffers.push_back(
            {ExpertBiasName(layer), InputRole::kBuffer, DType::kF32, {config.moe.experts}});
    } else {
      AddFeedForward(params, unit + ".feed_forward", config.dim, config.ffn_dim, unit);
    }
  }
  AddOutput(params, config);
  parts.params = params.Take();
  parts.logits = [config](const Weights& weights, const at::Tensor& tokens) {
    return Decoder(
        weights, config, tokens, [&](const Weights& w, const at::Tensor& x, int64_t layer) {
          at::Tensor h =
              at::add(x, Attention(w, config, RmsNorm(w, "attention_norm", x, config.norm_eps)));
          at::Tensor normed = RmsNorm(w, "ffn_norm", h, config.norm_eps);
          if (!config.is_moe_layer(layer))
            return at::add(h, FeedForward(w, "feed_forward", normed));
          std::optional<at::Tensor> bias;
          if (config.moe.bias) bias = w.Buffer(ExpertBiasName(layer));
          return at::add(h, Moe(w, config, normed, bias));
        });
  };
  return parts;
}

}  // namespace heddle
