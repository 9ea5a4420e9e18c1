// Models for tests: an embedding and a stack of matrices.
#include <ATen/ops/embedding.h>
#include <ATen/ops/relu.h>

#include "heddle/capture/scope.h"
#include "heddle/models/model.h"

namespace heddle {

FamilyParts MakeToy(const ModelConfig& config, const BatchConfig&) {
  ParamList params;
  AddEmbedding(params, config);
  bool deep = config.family == Family::kMlp;
  for (int64_t layer = 0; deep && layer < config.n_layers; ++layer) {
    std::string unit = BlockUnit(layer);
    params.Add(unit + ".up.weight", {config.ffn_dim, config.dim}, unit);
    params.Add(unit + ".down.weight", {config.dim, config.ffn_dim}, unit);
  }
  params.Add("output.weight", {config.vocab_size, config.dim}, "output");
  FamilyParts parts;
  parts.params = params.Take();
  parts.logits = [config, deep](const Weights& weights, const at::Tensor& tokens) {
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

}  // namespace heddle
