// Qwen 3: as Llama, with a norm on every query and key head, rotary embedding of halves, and optionally experts.
#include <ATen/ops/add.h>

#include "heddle/capture/scope.h"
#include "heddle/models/decoder.h"

namespace heddle {
namespace qwen3 {

ModelConfig Dense(std::string flavor, int64_t dim, int64_t layers, int64_t heads, int64_t kv_heads,
                  int64_t ffn, bool tied, int64_t vocab = 151936) {
  ModelConfig c;
  c.flavor = std::move(flavor);
  c.dim = dim;
  c.n_layers = layers;
  c.n_heads = heads;
  c.n_kv_heads = kv_heads;
  c.head_dim = 128;
  c.ffn_dim = ffn;
  c.vocab_size = vocab;
  c.max_length = 40960;
  c.tied = tied;
  c.norm_eps = 1e-6;
  c.rope.theta = 1e6;
  return c;
}

ModelConfig Mixture(std::string flavor, int64_t dim, int64_t layers, int64_t heads,
                    int64_t kv_heads, int64_t ffn, int64_t expert_ffn, int64_t experts,
                    int64_t vocab = 151936) {
  ModelConfig c = Dense(std::move(flavor), dim, layers, heads, kv_heads, ffn, false, vocab);
  c.moe = {.experts = experts, .top_k = 8, .ffn_dim = expert_ffn, .normalize = true};
  return c;
}

std::vector<ModelConfig> Flavors() {
  return {
      Dense("debugmodel", 256, 8, 16, 8, 3072, true, 2048),
      Dense("0.6B", 1024, 28, 16, 8, 3072, true),
      Dense("1.7B", 2048, 28, 16, 8, 6144, true),
      Dense("4B", 2560, 36, 32, 8, 9728, true),
      Dense("8B", 4096, 36, 32, 8, 12288, false),
      Dense("14B", 5120, 40, 40, 8, 17408, false),
      Dense("32B", 5120, 64, 64, 8, 25600, false),
      Mixture("debugmodel_moe", 256, 8, 16, 8, 3072, 768, 64, 2048),
      Mixture("30B-A3B", 2048, 48, 32, 4, 6144, 768, 128),
      Mixture("235B-A22B", 4096, 94, 64, 4, 12288, 1536, 128),
  };
}

// 0.02 for all, but smaller for what writes to the residual stream of a mixture, as TorchTitan and Megatron have it.
Spread InitialSpread(const ModelConfig& c, std::string_view name, int64_t) {
  if (c.moe.experts > 0 && (name.ends_with(".wo.weight") || name.ends_with(".w2_EDF")))
    return DepthSpread(c.n_layers - 1);
  return {};
}

at::Tensor Attention(const ModelWeights& weights, const ModelConfig& c, const at::Tensor& x) {
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

FamilyParts Make(const ModelConfig& config, const BatchConfig& batch) {
  ParamList params;
  AddEmbedding(params, config);
  int64_t size = config.head_size();
  FamilyParts parts;
  parts.buffers = {{"rope_cos", InputRole::kBuffer, DType::kF32, {batch.seq_len, size}},
                   {"rope_sin", InputRole::kBuffer, DType::kF32, {batch.seq_len, size}}};
  for (int64_t layer = 0; layer < config.n_layers; ++layer) {
    std::string unit = BlockUnit(layer);
    AddAttention(params, config, unit);
    params.Add(unit + ".attention.q_norm.weight", {size}, unit);
    params.Add(unit + ".attention.k_norm.weight", {size}, unit);
    if (config.is_moe_layer(layer)) {
      AddMoe(params, parts.buffers, config, layer);
    } else {
      AddFeedForward(params, unit + ".feed_forward", config.dim, config.ffn_dim, unit);
    }
    params.Add(unit + ".attention_norm.weight", {config.dim}, unit);
    params.Add(unit + ".ffn_norm.weight", {config.dim}, unit);
  }
  AddOutput(params, config);
  parts.params = params.Take();
  parts.logits = [config](const ModelWeights& weights, const at::Tensor& tokens) {
    return Decoder(
        weights, config, tokens, [&](const ModelWeights& w, const at::Tensor& x, int64_t layer) {
          at::Tensor h =
              at::add(x, Attention(w, config, RmsNorm(w, "attention_norm", x, config.norm_eps)));
          at::Tensor normed = RmsNorm(w, "ffn_norm", h, config.norm_eps);
          return at::add(h, config.is_moe_layer(layer) ? Moe(w, config, normed, layer)
                                                       : FeedForward(w, "feed_forward", normed));
        });
  };
  return parts;
}

ParallelRules Rules() {
  ParallelRules rules = DecoderRules();
  AddMoeRules(rules);
  return rules;
}

}  // namespace qwen3

HEDDLE_DEFINE_FAMILY(qwen3){
    .name = "qwen3",
    .flavors = qwen3::Flavors,
    .check = CheckDecoder,
    .make = qwen3::Make,
    .spread = qwen3::InitialSpread,
    .rules = qwen3::Rules,
    .attention = qwen3::Attention,
};

}  // namespace heddle
