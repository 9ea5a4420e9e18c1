// Models for tests: an embedding and a stack of matrices.
#include <ATen/ops/embedding.h>
#include <ATen/ops/relu.h>

#include "heddle/run/capture/scope.h"
#include "heddle/run/models/decoder.h"

namespace heddle::run {
namespace toys {

ModelConfig Flavor(std::string flavor, int64_t dim, int64_t layers, int64_t ffn) {
  ModelConfig c;
  c.flavor = std::move(flavor);
  c.dim = dim;
  c.n_layers = layers;
  c.ffn_dim = ffn;
  c.vocab_size = 64;
  return c;
}

FamilyParts Make(const ModelConfig& config, bool deep) {
  ParamList params;
  AddEmbedding(params, config);
  for (int64_t layer = 0; deep && layer < config.n_layers; ++layer) {
    std::string unit = BlockUnit(layer);
    params.Add(unit + ".up.weight", {config.ffn_dim, config.dim}, unit);
    params.Add(unit + ".down.weight", {config.dim, config.ffn_dim}, unit);
  }
  params.Add("output.weight", {config.vocab_size, config.dim}, "output");
  FamilyParts parts;
  parts.params = params.Take();
  parts.logits = [config, deep](const ModelWeights& weights, const at::Tensor& tokens) {
    at::Tensor x;
    {
      ScopeGuard scope("tok_embeddings");
      x = at::embedding(weights("weight"), tokens);
    }
    for (int64_t layer = 0; deep && layer < config.n_layers; ++layer) {
      ScopeGuard scope(fmt::format("layers.{}", layer));
      x = Linear(weights, "down", at::relu(Linear(weights, "up", x)));
    }
    return Linear(weights, "output", x);
  };
  return parts;
}

compile::ParallelRules Rules() {
  compile::ParallelRules rules;
  rules.weights = {{"tok_embeddings.weight", 0},
                   {"output.weight", 0},
                   {"**.up.weight", 0},
                   {"**.down.weight", 1}};
  rules.layers = {{.pattern = "tok_embeddings", .out = compile::Flow::kResidual},
                  {.pattern = "layers.*.up", .in = compile::Flow::kWhole},
                  {.pattern = "layers.*.down", .out = compile::Flow::kResidual},
                  {.pattern = "output", .in = compile::Flow::kWhole, .out = compile::Flow::kLogits},
                  {.pattern = "loss", .in = compile::Flow::kLogits, .why = Why::kLoss}};
  return rules;
}

Status CheckMlp(const ModelConfig& c) {
  if (c.ffn_dim >= 1) return Done{};
  return Error(Diag::kModelSize, "ffn_dim is {}, expected at least 1", c.ffn_dim);
}

}  // namespace toys

HEDDLE_DEFINE_FAMILY(mlp){
    .name = "mlp",
    .flavors = [] { return std::vector{toys::Flavor("small", 32, 2, 64)}; },
    .check = toys::CheckMlp,
    .make = [](const ModelConfig& config, const BatchConfig&) { return toys::Make(config, true); },
    .init = DecoderInit,
    .rules = toys::Rules,
};

HEDDLE_DEFINE_FAMILY(linear){
    .name = "linear",
    .flavors = [] { return std::vector{toys::Flavor("small", 32, 1, 16)}; },
    .make = [](const ModelConfig& config, const BatchConfig&) { return toys::Make(config, false); },
    .init = DecoderInit,
    .rules = toys::Rules,
};

}  // namespace heddle::run
