#include "heddle/run/models/decoder.h"

#include <algorithm>
#include <cmath>

#include <ATen/ops/add.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/mul.h>

#include "heddle/core/base/text.h"
#include "heddle/run/capture/scope.h"
#include "heddle/run/layers/attention.h"

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

void AddNorm(ParamList& params, const ModelConfig& config, const std::string& name,
             const std::string& unit) {
  params.Add(name + ".weight", {config.dim}, unit);
  if (config.family->norm == NormKind::kLayer) params.Add(name + ".bias", {config.dim}, unit);
}

at::Tensor GroupedQueryAttention(const ModelWeights& weights, const ModelConfig& config,
                                 const at::Tensor& x, int64_t layer, const RotateHeads& rotate) {
  auto heads = [&](std::string_view name) {
    return Linear(weights, name, x).view({x.size(0), x.size(1), -1, config.head_size()});
  };
  at::Tensor q = heads("wq");
  at::Tensor k = heads("wk");
  at::Tensor v = heads("wv");
  q = rotate(q, "q_norm").transpose(1, 2);
  k = rotate(k, "k_norm").transpose(1, 2);
  AttentionOptions options{.window = config.window_of(layer), .softcap = config.attention_softcap};
  if (config.family->sinks) options.sinks = weights("sinks");
  if (config.query_scalar > 0)
    options.scale = 1.0 / std::sqrt(static_cast<double>(config.query_scalar));
  at::Tensor out = Attend(weights, q, k, v.transpose(1, 2), options);
  return Linear(weights, "wo", out.transpose(1, 2).reshape({x.size(0), x.size(1), -1}));
}

std::vector<StepInput> HalfRotations(const ModelConfig& config, const BatchConfig& batch) {
  std::vector<int64_t> shape = {batch.seq_len, config.head_size()};
  std::vector<StepInput> tables;
  for (int64_t layer = 0; layer < config.n_layers; ++layer) {
    auto [cosines, sines] = HalfRotationNames(config, layer);
    if (std::ranges::any_of(tables, [&](const StepInput& t) { return t.name == cosines; }))
      continue;
    tables.push_back({std::string(cosines), InputRole::kBuffer, DType::kF32, shape});
    tables.push_back({std::string(sines), InputRole::kBuffer, DType::kF32, shape});
  }
  return tables;
}

std::pair<std::string_view, std::string_view> HalfRotationNames(const ModelConfig& config,
                                                                int64_t layer) {
  if (config.rope.local_theta > 0 && config.is_local(layer))
    return {"rope_local_cos", "rope_local_sin"};
  return {"rope_cos", "rope_sin"};
}

at::Tensor Norm(const ModelWeights& weights, const ModelConfig& config, std::string_view name,
                const at::Tensor& x) {
  switch (config.family->norm) {
    case NormKind::kRms: return RmsNorm(weights, name, x, config.norm_eps);
    case NormKind::kOffsetRms: return OffsetRmsNorm(weights, name, x, config.norm_eps);
    case NormKind::kLayer: return LayerNorm(weights, name, x, config.norm_eps);
  }
  return {};
}

at::Tensor AddPart(const ModelWeights& weights, const ModelConfig& config, const std::string& name,
                   const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& part) {
  NormPlace place = config.family->norms;
  at::Tensor y = x;
  if (place != NormPlace::kAfter) y = Norm(weights, config, name + "_norm", y);
  y = WithBias(weights, name + "_output", part(y));
  if (place == NormPlace::kAfter) y = Norm(weights, config, name + "_norm", y);
  if (place == NormPlace::kAround) y = Norm(weights, config, name + "_post_norm", y);
  return at::add(x, y);
}

at::Tensor FinishEmbedding(const ModelWeights& weights, const ModelConfig& config, at::Tensor x,
                           const std::function<at::Tensor(const at::Tensor&)>& own) {
  if (config.family->scaled_embedding) {
    ScopeGuard scope("embedding_scale");
    auto scale = static_cast<float>(std::sqrt(static_cast<double>(config.dim)));
    if (x.scalar_type() == at::kBFloat16) scale = static_cast<c10::BFloat16>(scale);
    if (x.scalar_type() == at::kHalf) scale = static_cast<c10::Half>(scale);
    x = at::mul(x, scale);
  }
  if (config.family->learned_positions) {
    ScopeGuard scope("position_embeddings");
    at::Tensor rows = at::embedding(weights("weight"), weights.Positions(kPositionIds));
    x = at::add(x, own ? own(rows) : rows);
  }
  return x;
}

at::Tensor CappedLogits(const ModelConfig& config, const at::Tensor& logits) {
  return config.logit_softcap > 0 ? Softcap(logits, config.logit_softcap) : logits;
}

namespace {

at::Tensor DecoderBlock(const ModelWeights& weights, const ModelConfig& config, const at::Tensor& x,
                        int64_t layer) {
  ScopeGuard scope(BlockUnit(layer));
  at::Tensor h = AddPart(weights, config, "attention", x, [&](const at::Tensor& y) {
    return config.family->attention(weights, config, y, layer);
  });
  return AddPart(weights, config, "ffn", h, [&](const at::Tensor& y) {
    return config.is_moe_layer(layer) ? Moe(weights, config, y, layer)
                                      : config.family->feed_forward(weights, "feed_forward", y);
  });
}

at::Tensor DecoderLogits(const ModelWeights& weights, const ModelConfig& config,
                         const at::Tensor& tokens) {
  at::Tensor x;
  {
    ScopeGuard scope("tok_embeddings");
    x = at::embedding(weights("weight"), tokens);
  }
  x = FinishEmbedding(weights, config, x, nullptr);
  for (int64_t layer = 0; layer < config.n_layers; ++layer)
    x = DecoderBlock(weights, config, x, layer);
  // Only the last position predicts a new token.
  if (weights.cache() != nullptr) x = x.slice(1, -1);
  x = Norm(weights, config, "norm", x);
  if (!config.tied) {
    at::Tensor logits = Linear(weights, "output", x);
    ScopeGuard scope("output");
    return CappedLogits(config, logits);
  }
  at::Tensor table;
  {
    ScopeGuard scope("tok_embeddings");
    table = weights("weight");
  }
  ScopeGuard scope("output");
  return CappedLogits(config, Product(weights, x, table));
}

}  // namespace

FamilyParts DecoderParts(const ModelConfig& config, std::vector<StepInput> buffers,
                         const BlockParams& block) {
  ParamList params;
  AddEmbedding(params, config);
  if (config.family->learned_positions) {
    params.Add("position_embeddings.weight", {config.max_length, config.dim},
               EmbeddingUnit(config));
  }
  for (int64_t layer = 0; layer < config.n_layers; ++layer) {
    const std::string unit = BlockUnit(layer);
    auto add_norms = [&] {
      for (const char* part : {".attention", ".ffn"}) {
        AddNorm(params, config, unit + part + "_norm", unit);
        if (config.family->norms == NormPlace::kAround)
          AddNorm(params, config, unit + part + "_post_norm", unit);
      }
    };
    block.add_attention(params, config, unit);
    if (block.output_biases) params.Add(unit + ".attention_output.bias", {config.dim}, unit);
    if (block.norms_first) add_norms();
    if (config.is_moe_layer(layer)) {
      AddMoe(params, buffers, config, layer);
    } else {
      block.add_feed_forward(params, unit + ".feed_forward", config.dim, config.ffn_dim, unit);
      if (block.output_biases) params.Add(unit + ".ffn_output.bias", {config.dim}, unit);
    }
    if (!block.norms_first) add_norms();
  }
  AddNorm(params, config, "norm", OutputUnit(config));
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
  // An adapter's B is split as the rows of its weight, and its A as the columns.
  for (const char* rows : {"wq", "wk", "wv", "w1", "w3"})
    rules.weights.push_back({fmt::format("**.{}.{}", rows, kLoraB), 0});
  for (const char* columns : {"wo", "w2"})
    rules.weights.push_back({fmt::format("**.{}.{}", columns, kLoraA), 1});
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
  rules.positions = {"rope",           "rope_cos",       "rope_sin",
                     "rope_local_cos", "rope_local_sin", std::string(kPositionIds)};
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

namespace {

constexpr std::string_view kWeight = ".weight";

}  // namespace

bool IsAdapter(std::string_view param) {
  return param.ends_with(kLoraA) || param.ends_with(kLoraB);
}

bool HasAdapter(const LoraConfig& lora, std::string_view param) {
  if (lora.rank == 0 || !param.ends_with(kWeight)) return false;
  std::vector<std::string_view> parts = Split(param, '.');
  // `layers.0.attention.wq.weight`
  if (parts.size() != 5 || (parts[2] != "attention" && parts[2] != "feed_forward")) return false;
  std::vector<std::string_view> targets = Split(lora.targets, ',');
  return std::ranges::find(targets, parts[3]) != targets.end();
}

std::vector<ParamSpec> WithAdapters(const LoraConfig& lora, std::vector<ParamSpec> params) {
  if (lora.rank == 0) return params;
  std::vector<ParamSpec> all;
  for (ParamSpec& param : params) {
    param.trainable = false;
    all.push_back(param);
    if (!HasAdapter(lora, param.name)) continue;
    std::string module = param.name.substr(0, param.name.size() - kWeight.size() + 1);
    all.push_back({module + std::string(kLoraA), {lora.rank, param.shape[1]}, param.unit});
    all.push_back({module + std::string(kLoraB), {param.shape[0], lora.rank}, param.unit});
  }
  return all;
}

}  // namespace heddle::run
