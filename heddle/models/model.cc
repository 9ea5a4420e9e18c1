#include "heddle/models/model.h"

#include <cmath>
#include <numbers>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/polar.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

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
    frequencies = c.rope_scaling_kind == RopeScaling::kYarn
                      ? ScaleYarn(frequencies, c.rope_scaling, c.rope_theta)
                      : ScaleLlama(frequencies, c.rope_scaling);
  }
  return RopeAngles(frequencies, model.batch.seq_len);
}

// Logits are the largest activation; with this many elements their bytes are a number, whatever is done with them.
Status CheckBatch(const ModelConfig& config, const BatchConfig& batch) {
  constexpr int64_t kMostTokens = int64_t{1} << 40;
  int64_t tokens = 0;
  bool fits = batch.batch >= 1 && batch.seq_len >= 1 &&
              !__builtin_mul_overflow(batch.batch, batch.seq_len, &tokens) &&
              tokens <= kMostTokens && tokens <= (int64_t{1} << 56) / config.vocab_size &&
              tokens <= (int64_t{1} << 56) / std::max(config.dim, config.ffn_dim);
  if (fits) return Done{};
  return Error(Diag::kModelSize,
               "a batch of {} sequences of {} tokens; both must be at least 1, and all tokens at "
               "most 2^40",
               batch.batch, batch.seq_len);
}

Status CheckParams(std::span<const ParamSpec> params) {
  constexpr int64_t kMost = int64_t{1} << 56;
  int64_t all = 0;
  for (const ParamSpec& param : params) {
    int64_t count = 1;
    for (int64_t size : param.shape) {
      if (__builtin_mul_overflow(count, size, &count)) count = kMost;
      count = std::min(count, kMost);
    }
    all += count;
    if (all >= kMost)
      return Error(Diag::kModelSize, "with `{}` the parameters have more than 2^56 elements",
                   param.name);
  }
  return Done{};
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
  HEDDLE_RETURN_IF_ERROR(CheckBatch(config, batch));
  Model model{config, batch, numerics, {}, {}, {}, {}, {}};
  FamilyParts parts = config.family->make(config, batch);
  model.params = std::move(parts.params);
  HEDDLE_RETURN_IF_ERROR(CheckParams(model.params));
  model.inputs = std::move(parts.buffers);
  if (numerics.loss_divisor == LossDivisor::kGiven)
    model.inputs.push_back({std::string(kTokenCount), InputRole::kHyper, DType::kF32, {}});
  model.inputs.push_back({"tokens", InputRole::kBatch, DType::kI64, {batch.batch, batch.seq_len}});
  model.inputs.push_back({"labels", InputRole::kBatch, DType::kI64, {batch.batch, batch.seq_len}});
  // Copies of the specs, so that the function does not depend on where the model lives.
  model.logits = [specs = model.params, inputs = model.inputs, numerics,
                  logits = std::move(parts.logits)](std::span<const at::Tensor> params,
                                                    std::span<const at::Tensor> given) {
    Weights weights(specs, params, inputs, given, numerics);
    return logits(weights, given[given.size() - 2]);
  };
  model.loss_sum = [logits = model.logits](std::span<const at::Tensor> params,
                                           std::span<const at::Tensor> given) {
    return SummedLoss(logits(params, given), given[given.size() - 1]);
  };
  model.loss = [sum = model.loss_sum, numerics](std::span<const at::Tensor> params,
                                                std::span<const at::Tensor> given) {
    at::Tensor count;
    if (numerics.loss_divisor == LossDivisor::kGiven) count = given[given.size() - 3];
    return DividedLoss(sum(params, given), given[given.size() - 1], numerics.loss_divisor, count);
  };
  return model;
}

const StepInput* FindBuffer(const Model& model, std::string_view name) {
  for (const StepInput& input : model.inputs) {
    if (input.role == InputRole::kBuffer && input.name == name) return &input;
  }
  return nullptr;
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

Result<Module> CaptureModel(const Model& model, const std::optional<OptimizerOptions>& optimizer) {
  CaptureOptions options;
  options.optimizer = optimizer;
  return CaptureModel(model, options);
}

Result<Module> CaptureModel(const Model& model, CaptureOptions options) {
  if (model.numerics.compute == DType::kF64) options.param_dtype = DType::kF64;
  return Capture(model.loss, model.params, model.inputs, options);
}

}  // namespace heddle
