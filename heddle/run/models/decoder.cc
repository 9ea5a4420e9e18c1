#include "heddle/run/models/decoder.h"

#include <cmath>

#include <ATen/ops/add.h>
#include <ATen/ops/embedding.h>

#include "heddle/run/capture/scope.h"

namespace heddle::run {

ModelConfig DecoderConfig(std::string flavor, int64_t dim, int64_t layers, int64_t heads,
                          int64_t kv_heads, int64_t ffn, int64_t vocab) {
  ModelConfig c;
  c.flavor = std::move(flavor);
  c.dim = dim;
  c.n_layers = layers;
  c.n_heads = heads;
  c.n_kv_heads = kv_heads;
  c.ffn_dim = ffn;
  c.vocab_size = vocab;
  return c;
}

std::string BlockUnit(int64_t layer) { return fmt::format("layers.{}", layer); }
std::string EmbeddingUnit(const ModelConfig& config) {
  return config.tied ? OutputUnit(config) : "tok_embeddings";
}
std::string OutputUnit(const ModelConfig& config) {
  return config.tied ? "tok_embeddings+norm+output" : "norm+output";
}

void AddEmbedding(ParamList& params, const ModelConfig& config) {
  params.Add("tok_embeddings.weight", {config.vocab_size, config.dim}, EmbeddingUnit(config));
}

namespace {

void AddAttentionParams(ParamList& params, const ModelConfig& config, const std::string& unit,
                        bool biases) {
  std::string prefix = unit + ".attention.";
  int64_t size = config.head_size();
  for (auto [name, heads] : {std::pair("wq", config.n_heads), std::pair("wk", config.n_kv_heads),
                             std::pair("wv", config.n_kv_heads)}) {
    params.Add(prefix + name + ".weight", {heads * size, config.dim}, unit);
    if (biases) params.Add(prefix + name + ".bias", {heads * size}, unit);
  }
  params.Add(prefix + "wo.weight", {config.dim, config.n_heads * size}, unit);
}

}  // namespace

void AddAttention(ParamList& params, const ModelConfig& config, const std::string& unit) {
  AddAttentionParams(params, config, unit, /*biases=*/false);
}

void AddBiasedAttention(ParamList& params, const ModelConfig& config, const std::string& unit) {
  AddAttentionParams(params, config, unit, /*biases=*/true);
}

void AddFeedForward(ParamList& params, const std::string& prefix, int64_t dim, int64_t hidden,
                    const std::string& unit) {
  params.Add(prefix + ".w1.weight", {hidden, dim}, unit);
  params.Add(prefix + ".w2.weight", {dim, hidden}, unit);
  params.Add(prefix + ".w3.weight", {hidden, dim}, unit);
}

at::Tensor GroupedQueryAttention(const ModelWeights& weights, const ModelConfig& config,
                                 const at::Tensor& x, const RotateHeads& rotate) {
  auto heads = [&](std::string_view name) {
    return Linear(weights, name, x).view({x.size(0), x.size(1), -1, config.head_size()});
  };
  at::Tensor q = heads("wq");
  at::Tensor k = heads("wk");
  at::Tensor v = heads("wv");
  q = rotate(q, "q_norm").transpose(1, 2);
  k = rotate(k, "k_norm").transpose(1, 2);
  at::Tensor out = Attend(weights, q, k, v.transpose(1, 2), std::nullopt, config.window);
  return Linear(weights, "wo", out.transpose(1, 2).reshape({x.size(0), x.size(1), -1}));
}

std::vector<StepInput> HalfRotations(const ModelConfig& config, const BatchConfig& batch) {
  std::vector<int64_t> shape = {batch.seq_len, config.head_size()};
  return {{"rope_cos", InputRole::kBuffer, DType::kF32, shape},
          {"rope_sin", InputRole::kBuffer, DType::kF32, shape}};
}

at::Tensor Normed(const ModelWeights& weights, const ModelConfig& config, std::string_view norm,
                  const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& part) {
  auto apply = [&](const at::Tensor& y) { return RmsNorm(weights, norm, y, config.norm_eps); };
  return config.family->norms_after ? apply(part(x)) : part(apply(x));
}

namespace {

at::Tensor DecoderBlock(const ModelWeights& weights, const ModelConfig& config, const at::Tensor& x,
                        int64_t layer) {
  ScopeGuard scope(BlockUnit(layer));
  at::Tensor h = at::add(x, Normed(weights, config, "attention_norm", x, [&](const at::Tensor& y) {
                           return config.family->attention(weights, config, y);
                         }));
  return at::add(h, Normed(weights, config, "ffn_norm", h, [&](const at::Tensor& y) {
                   return config.is_moe_layer(layer) ? Moe(weights, config, y, layer)
                                                     : FeedForward(weights, "feed_forward", y);
                 }));
}

at::Tensor DecoderLogits(const ModelWeights& weights, const ModelConfig& config,
                         const at::Tensor& tokens) {
  at::Tensor x;
  {
    ScopeGuard scope("tok_embeddings");
    x = at::embedding(weights("weight"), tokens);
  }
  for (int64_t layer = 0; layer < config.n_layers; ++layer)
    x = DecoderBlock(weights, config, x, layer);
  // Only the last position predicts a new token.
  if (weights.cache() != nullptr) x = x.slice(1, -1);
  x = RmsNorm(weights, "norm", x, config.norm_eps);
  if (!config.tied) return Linear(weights, "output", x);
  at::Tensor table;
  {
    ScopeGuard scope("tok_embeddings");
    table = weights("weight");
  }
  ScopeGuard scope("output");
  return Product(weights, x, table);
}

}  // namespace

FamilyParts DecoderParts(const ModelConfig& config, std::vector<StepInput> buffers,
                         const BlockParams& block) {
  ParamList params;
  AddEmbedding(params, config);
  for (int64_t layer = 0; layer < config.n_layers; ++layer) {
    const std::string unit = BlockUnit(layer);
    auto add_norms = [&] {
      params.Add(unit + ".attention_norm.weight", {config.dim}, unit);
      params.Add(unit + ".ffn_norm.weight", {config.dim}, unit);
    };
    block.add_attention(params, config, unit);
    if (block.norms_first) add_norms();
    if (config.is_moe_layer(layer)) {
      AddMoe(params, buffers, config, layer);
    } else {
      AddFeedForward(params, unit + ".feed_forward", config.dim, config.ffn_dim, unit);
    }
    if (!block.norms_first) add_norms();
  }
  params.Add("norm.weight", {config.dim}, OutputUnit(config));
  if (!config.tied)
    params.Add("output.weight", {config.vocab_size, config.dim}, OutputUnit(config));
  return {.params = params.Take(),
          .buffers = std::move(buffers),
          .logits = [config](const ModelWeights& weights, const at::Tensor& tokens) {
            return DecoderLogits(weights, config, tokens);
          }};
}

InitDistribution PlainInit(const ModelConfig&, std::string_view, int64_t) { return {}; }

InitDistribution DepthScaledInit(int64_t layer) {
  return {.deviation = 0.02 / std::sqrt(2.0 * static_cast<double>(layer + 1))};
}

InitDistribution DecoderInit(const ModelConfig& c, std::string_view name, int64_t layer) {
  if (name == "output.weight")
    return {.deviation = 1.0 / std::sqrt(static_cast<double>(c.dim)), .cut = 3.0};
  // With tied weights, large values would make each token predict itself.
  if (name == "tok_embeddings.weight") return {.deviation = c.tied ? 0.02 : 1.0};
  for (std::string_view tail : {".wo.weight", ".w2.weight", ".w3.weight", ".w2_EDF", ".w3_EFD"}) {
    if (name.ends_with(tail)) return DepthScaledInit(layer);
  }
  return {};
}

compile::ParallelRules DecoderRules() {
  compile::ParallelRules rules;
  rules.weights = {
      // Vocabulary: rows of the table.
      {"tok_embeddings.weight", 0},
      {"output.weight", 0},
      // Heads and hidden units: rows of the stored weight.
      {"**.attention.wq.weight", 0},
      {"**.attention.wk.weight", 0},
      {"**.attention.wv.weight", 0},
      {"**.w1.weight", 0},
      {"**.w3.weight", 0},
      // Heads and hidden units: columns of the stored weight.
      {"**.attention.wo.weight", 1},
      {"**.w2.weight", 1},
  };
  rules.layers = {
      {.pattern = "tok_embeddings", .out = compile::Flow::kResidual},
      {.pattern = "layers.*.attention_norm",
       .in = compile::Flow::kResidual,
       .out = compile::Flow::kResidual},
      {.pattern = "layers.*.attention",
       .in = compile::Flow::kWhole,
       .out = compile::Flow::kResidual,
       .mixes_positions = true},
      {.pattern = "layers.*.ffn_norm",
       .in = compile::Flow::kResidual,
       .out = compile::Flow::kResidual},
      {.pattern = "layers.*.feed_forward",
       .in = compile::Flow::kWhole,
       .out = compile::Flow::kResidual},
      {.pattern = "norm", .in = compile::Flow::kResidual, .out = compile::Flow::kResidual},
      {.pattern = "output", .in = compile::Flow::kWhole, .out = compile::Flow::kLogits},
      {.pattern = "loss", .in = compile::Flow::kLogits, .why = Why::kLoss},
  };
  rules.positions = {"rope", "rope_cos", "rope_sin"};
  return rules;
}

void AddMoeRules(compile::ParallelRules& rules) {
  rules.weights.push_back({"**.w1_EFD", 1});
  rules.weights.push_back({"**.w3_EFD", 1});
  rules.weights.push_back({"**.w2_EDF", 2});
  rules.experts = {"**.w1_EFD", "**.w2_EDF", "**.w3_EFD"};
  // Every rank routes its own tokens.
  rules.layers.push_back({.pattern = "layers.*.moe",
                          .in = compile::Flow::kWhole,
                          .out = compile::Flow::kResidual,
                          .own_tokens = true});
}

}  // namespace heddle::run
