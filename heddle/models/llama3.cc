// Llama 3: grouped-query attention, rotary embedding on adjacent pairs, SwiGLU.
#include <ATen/ops/add.h>

#include "heddle/capture/scope.h"
#include "heddle/models/decoder.h"

namespace heddle {
namespace llama3 {

ModelConfig Flavor(std::string flavor, int64_t dim, int64_t layers, int64_t heads, int64_t kv_heads,
                   int64_t ffn, int64_t vocab = 128256) {
  ModelConfig c;
  c.flavor = std::move(flavor);
  c.dim = dim;
  c.n_layers = layers;
  c.n_heads = heads;
  c.n_kv_heads = kv_heads;
  c.ffn_dim = ffn;
  c.vocab_size = vocab;
  c.rope.scaling = RopeScaling::kLlama;
  c.rope.factor = 8.0;
  return c;
}

// Llama 3.2, which publishes another factor than its larger siblings.
ModelConfig Small(std::string flavor, int64_t dim, int64_t layers, int64_t heads) {
  ModelConfig c = Flavor(std::move(flavor), dim, layers, heads, 8, 8192);
  c.tied = true;
  c.rope.factor = 32.0;
  return c;
}

// Nobody publishes it. Positions turn as plain as in the reference that its bits are held against; TorchTitan scales by 8.
ModelConfig DebugModel() {
  ModelConfig c = Flavor("debugmodel", 256, 6, 16, 16, 768, 2048);
  c.rope.scaling = RopeScaling::kNone;
  return c;
}

std::vector<ModelConfig> Flavors() {
  return {
      DebugModel(),
      Small("1B", 2048, 16, 32),
      Small("3B", 3072, 28, 24),
      Flavor("8B", 4096, 32, 32, 8, 14336),
      Flavor("70B", 8192, 80, 64, 8, 28672),
      Flavor("405B", 16384, 126, 128, 8, 53248),
  };
}

at::Tensor Attention(const ModelWeights& weights, const ModelConfig& c, const at::Tensor& x) {
  ScopeGuard scope("attention");
  at::Tensor rotations = weights.Buffer("rope");
  auto heads = [&](std::string_view name) {
    return Linear(weights, name, x).view({x.size(0), x.size(1), -1, c.head_size()});
  };
  at::Tensor q = heads("wq");
  at::Tensor k = heads("wk");
  at::Tensor v = heads("wv");
  q = RotatePairs(q, rotations).transpose(1, 2);
  k = RotatePairs(k, rotations).transpose(1, 2);
  at::Tensor out = Attend(q, k, v.transpose(1, 2), std::nullopt, weights.numerics());
  return Linear(weights, "wo", out.transpose(1, 2).reshape({x.size(0), x.size(1), -1}));
}

FamilyParts Make(const ModelConfig& config, const BatchConfig& batch) {
  ParamList params;
  AddEmbedding(params, config);
  for (int64_t layer = 0; layer < config.n_layers; ++layer) {
    std::string unit = BlockUnit(layer);
    AddAttention(params, config, unit);
    AddFeedForward(params, unit + ".feed_forward", config.dim, config.ffn_dim, unit);
    params.Add(unit + ".attention_norm.weight", {config.dim}, unit);
    params.Add(unit + ".ffn_norm.weight", {config.dim}, unit);
  }
  AddOutput(params, config);
  FamilyParts parts;
  parts.params = params.Take();
  parts.buffers = {
      {"rope", InputRole::kBuffer, DType::kC64, {batch.seq_len, config.head_size() / 2}}};
  parts.logits = [config](const ModelWeights& weights, const at::Tensor& tokens) {
    return Decoder(
        weights, config, tokens, [&](const ModelWeights& w, const at::Tensor& x, int64_t) {
          at::Tensor h =
              at::add(x, Attention(w, config, RmsNorm(w, "attention_norm", x, config.norm_eps)));
          return at::add(
              h, FeedForward(w, "feed_forward", RmsNorm(w, "ffn_norm", h, config.norm_eps)));
        });
  };
  return parts;
}

}  // namespace llama3

HEDDLE_DEFINE_FAMILY(llama3){
    .name = "llama3",
    .flavors = llama3::Flavors,
    .check = CheckDecoder,
    .make = llama3::Make,
    .spread = DecoderSpread,
    .rules = DecoderRules,
    .attention = llama3::Attention,
};

}  // namespace heddle
