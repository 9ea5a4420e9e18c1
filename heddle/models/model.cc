#include "heddle/models/model.h"

#include <cmath>
#include <numbers>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/polar.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "heddle/capture/scope.h"

namespace heddle {
namespace {

// Llama 3.1: slow frequencies are divided by the factor, fast ones stay, those between are blended.
at::Tensor ScaleLlama(const at::Tensor& frequencies, double factor) {
  constexpr double kLow = 1.0;
  constexpr double kHigh = 4.0;
  constexpr double kOriginal = 8192.0;
  at::Tensor wavelengths = 2 * std::numbers::pi / frequencies;
  at::Tensor slow = at::where(wavelengths > kOriginal / kLow, frequencies / factor, frequencies);
  at::Tensor blend = (kOriginal / wavelengths - kLow) / (kHigh - kLow);
  at::Tensor blended = (1 - blend) * frequencies / factor + blend * frequencies;
  at::Tensor between =
      (wavelengths <= kOriginal / kLow).logical_and(wavelengths >= kOriginal / kHigh);
  return at::where(between, blended, slow);
}

// YaRN: the same idea, with the blend along the dimensions.
at::Tensor ScaleYarn(const at::Tensor& frequencies, double factor, double theta) {
  constexpr double kFast = 32.0;
  constexpr double kSlow = 1.0;
  constexpr double kOriginal = 4096.0;
  auto size = static_cast<double>(frequencies.numel() * 2);
  auto dimension = [&](double rotations) {
    return size * std::log(kOriginal / (rotations * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  double low = std::max(std::floor(dimension(kFast)), 0.0);
  double high = std::min(std::ceil(dimension(kSlow)), size - 1);
  if (low == high) high += 0.001;
  at::Tensor ramp = ((at::ones_like(frequencies).cumsum(0) - 1 - low) / (high - low)).clamp(0, 1);
  at::Tensor keep = 1 - ramp;
  return frequencies / factor * (1 - keep) + frequencies * keep;
}

at::Tensor Rotations(const Model& model, int64_t size) {
  const ModelConfig& c = model.config;
  at::Tensor frequencies = RopeFrequencies(size, c.rope_theta);
  if (c.rope_scaling != 1.0) {
    frequencies = c.family == Family::kDeepSeekV3
                      ? ScaleYarn(frequencies, c.rope_scaling, c.rope_theta)
                      : ScaleLlama(frequencies, c.rope_scaling);
  }
  return RopeAngles(frequencies, model.batch.seq_len);
}

FamilyParts MakeParts(const ModelConfig& config, const BatchConfig& batch) {
  switch (config.family) {
    case Family::kLlama3: return MakeLlama3(config, batch);
    case Family::kQwen3: return MakeQwen3(config, batch);
    case Family::kDeepSeekV3: return MakeDeepSeekV3(config, batch);
    default: return MakeToy(config, batch);
  }
}

}  // namespace

int64_t Model::parameter_count() const {
  int64_t sum = 0;
  for (const ParamSpec& param : params) {
    int64_t count = 1;
    for (int64_t size : param.shape) count *= size;
    sum += count;
  }
  return sum;
}

Result<Model> MakeModel(const ModelConfig& config, const BatchConfig& batch,
                        const StepNumerics& numerics) {
  HEDDLE_RETURN_IF_ERROR(CheckConfig(config));
  if (batch.batch < 1 || batch.seq_len < 1) {
    return Error(Diag::kModelSize, "a batch of {} sequences of {} tokens; both must be at least 1",
                 batch.batch, batch.seq_len);
  }
  Model model{config, batch, numerics, {}, {}, {}};
  FamilyParts parts = MakeParts(config, batch);
  model.params = std::move(parts.params);
  model.inputs = std::move(parts.buffers);
  model.inputs.push_back({"tokens", InputRole::kBatch, DType::kI64, {batch.batch, batch.seq_len}});
  model.inputs.push_back({"labels", InputRole::kBatch, DType::kI64, {batch.batch, batch.seq_len}});
  // Copies of the specs, so that the function does not depend on where the model lives.
  model.loss = [specs = model.params, inputs = model.inputs, numerics,
                logits = std::move(parts.logits), tokens = batch.batch * batch.seq_len](
                   std::span<const at::Tensor> params, std::span<const at::Tensor> given) {
    Weights weights(specs, params, inputs, given, numerics);
    return TokenLoss(logits(weights, given[given.size() - 2]), given[given.size() - 1], tokens);
  };
  return model;
}

at::Tensor MakeBuffer(const Model& model, const StepInput& buffer) {
  if (buffer.name == "rope") {
    int64_t size =
        model.config.mla.kv_rank > 0 ? model.config.mla.rope_dim : model.config.head_size();
    at::Tensor angles = Rotations(model, size);
    return at::polar(at::ones_like(angles), angles);
  }
  if (buffer.name == "rope_cos" || buffer.name == "rope_sin") {
    at::Tensor angles = Rotations(model, model.config.head_size());
    angles = at::cat({angles, angles}, -1);
    return buffer.name == "rope_cos" ? angles.cos() : angles.sin();
  }
  return at::zeros(buffer.shape, at::kFloat);
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

void AddOutput(ParamList& params, const ModelConfig& config) {
  params.Add("norm.weight", {config.dim}, OutputUnit(config));
  if (!config.tied)
    params.Add("output.weight", {config.vocab_size, config.dim}, OutputUnit(config));
}

Result<Module> CaptureModel(const Model& model, const std::optional<OptimizerOptions>& optimizer) {
  CaptureOptions options;
  if (model.numerics.compute == DType::kF64) options.param_dtype = DType::kF64;
  options.optimizer = optimizer;
  return Capture(model.loss, model.params, model.inputs, options);
}

void AddAttention(ParamList& params, const ModelConfig& config, const std::string& unit) {
  std::string prefix = unit + ".attention.";
  int64_t size = config.head_size();
  params.Add(prefix + "wq.weight", {config.n_heads * size, config.dim}, unit);
  params.Add(prefix + "wk.weight", {config.n_kv_heads * size, config.dim}, unit);
  params.Add(prefix + "wv.weight", {config.n_kv_heads * size, config.dim}, unit);
  params.Add(prefix + "wo.weight", {config.dim, config.n_heads * size}, unit);
}

void AddFeedForward(ParamList& params, const std::string& prefix, int64_t dim, int64_t hidden,
                    const std::string& unit) {
  params.Add(prefix + ".w1.weight", {hidden, dim}, unit);
  params.Add(prefix + ".w2.weight", {dim, hidden}, unit);
  params.Add(prefix + ".w3.weight", {hidden, dim}, unit);
}

at::Tensor Decoder(const Weights& weights, const ModelConfig& config, const at::Tensor& tokens,
                   const BlockFunction& block) {
  at::Tensor x;
  {
    ScopeGuard scope("tok_embeddings");
    x = at::embedding(weights("weight"), tokens);
  }
  for (int64_t layer = 0; layer < config.n_layers; ++layer) {
    ScopeGuard scope(fmt::format("layers.{}", layer));
    x = block(weights, x, layer);
  }
  x = RmsNorm(weights, "norm", x, config.norm_eps);
  if (!config.tied) return Linear(weights, "output", x);
  at::Tensor table;
  {
    ScopeGuard scope("tok_embeddings");
    table = weights("weight");
  }
  ScopeGuard scope("output");
  return at::linear(x, table);
}

}  // namespace heddle
