#include "heddle/run/models/model.h"

#include <cmath>
#include <numbers>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/polar.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "heddle/run/aten/dtype.h"
#include "heddle/run/layers/attention.h"
#include "heddle/run/models/decoder.h"

namespace heddle::run {
namespace {

// Llama 3.1: divides slow frequencies by the factor, keeps fast ones, and blends those between.
at::Tensor ScaleLlama(const at::Tensor& frequencies, const RopeConfig& rope) {
  auto original = static_cast<double>(rope.original_length);
  at::Tensor wavelengths = 2 * std::numbers::pi / frequencies;
  at::Tensor slow =
      at::where(wavelengths > original / rope.low_freq, frequencies / rope.factor, frequencies);
  at::Tensor blend = (original / wavelengths - rope.low_freq) / (rope.high_freq - rope.low_freq);
  at::Tensor blended = (1 - blend) * frequencies / rope.factor + blend * frequencies;
  at::Tensor between = (wavelengths <= original / rope.low_freq)
                           .logical_and(wavelengths >= original / rope.high_freq);
  return at::where(between, blended, slow);
}

// YaRN: the same idea, with the blend along the dimensions.
at::Tensor ScaleYarn(const at::Tensor& frequencies, const RopeConfig& rope) {
  auto size = static_cast<double>(frequencies.numel() * 2);
  auto original = static_cast<double>(rope.original_length);
  auto dimension = [&](double rotations) {
    return size * std::log(original / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double low = dimension(rope.fast);
  double high = dimension(rope.slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, size - 1);
  if (low == high) high += 0.001;
  at::Tensor ramp = ((at::ones_like(frequencies).cumsum(0) - 1 - low) / (high - low)).clamp(0, 1);
  at::Tensor keep = 1 - ramp;
  return frequencies / rope.factor * (1 - keep) + frequencies * keep;
}

at::Tensor Rotations(const Model& model, int64_t size) {
  const RopeConfig& rope = model.config.rope;
  at::Tensor frequencies = RopeFrequencies(size, rope.theta);
  if (rope.scaling == RopeScaling::kLinear) frequencies = frequencies / rope.factor;
  if (rope.scaling == RopeScaling::kLlama) frequencies = ScaleLlama(frequencies, rope);
  if (rope.scaling == RopeScaling::kYarn) frequencies = ScaleYarn(frequencies, rope);
  return RopeAngles(frequencies, model.batch.seq_len);
}

// Logits are the largest activation. This limit keeps their bytes far below the range of 64 bits.
Status CheckBatch(const ModelConfig& config, const BatchConfig& batch) {
  constexpr int64_t kMostTokens = int64_t{1} << 40;
  int64_t tokens = 0;
  bool fits = batch.batch >= 1 && batch.seq_len >= 1 &&
              !__builtin_mul_overflow(batch.batch, batch.seq_len, &tokens) &&
              tokens <= kMostTokens && tokens <= (int64_t{1} << 56) / config.vocab_size &&
              tokens <= (int64_t{1} << 56) / std::max(config.dim, config.ffn_dim);
  if (fits && config.family->learned_positions && batch.seq_len > config.max_length)
    return Error(Diag::kModelSize,
                 "sequences have {} tokens, but {} has embeddings of {} positions (max_length)",
                 batch.seq_len, config.family->name, config.max_length);
  if (fits) return Done{};
  return Error(Diag::kModelSize,
               "a batch has {} sequences of {} tokens; both must be at least 1, and all tokens at "
               "most 2^40",
               batch.batch, batch.seq_len);
}

// Only attention composed of matmuls and a softmax has windows, softcaps and sinks.
Status ChooseMath(const ModelConfig& config, const BatchConfig& batch, StepNumerics& numerics) {
  std::string why = WhyMathOnly(config, batch.seq_len);
  if (why.empty()) return Done{};
  bool math =
      numerics.attention == AttentionKind::kFastest || numerics.attention == AttentionKind::kMath;
  if (!math || numerics.splits_queries || batch.documents) {
    std::string instead;
    if (config.attention_softcap > 0) {
      instead = "; --model.attention_softcap=0 computes without it";
    } else if (!config.family->sinks) {
      instead =
          fmt::format("; use --training.seq_len={} or less, or --model.window=0 to attend to all",
                      config.window);
    }
    return Error(Diag::kModelSize, "{}, which {} does not support{}", why,
                 batch.documents ? "--training.document_attention"
                 : numerics.splits_queries
                     ? "context parallelism"
                     : fmt::format("--attention={}", Name(numerics.attention)),
                 instead);
  }
  numerics.attention = AttentionKind::kMath;
  return Done{};
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

// Divides the loss of all inputs of a step.
at::Tensor Divided(const at::Tensor& sum, std::span<const at::Tensor> given, LossDivisor divisor) {
  at::Tensor count;
  if (divisor == LossDivisor::kGiven) count = given[given.size() - 3];
  return DividedLoss(sum, given[given.size() - 1], divisor, count);
}

}  // namespace

std::string WhyMathOnly(const ModelConfig& config, int64_t seq_len) {
  if (config.attention_softcap > 0)
    return fmt::format("the model caps attention scores at {} (model.attention_softcap)",
                       config.attention_softcap);
  if (config.family->sinks) return fmt::format("{} has attention sinks", config.family->name);
  if (!config.windowed(seq_len)) return "";
  return fmt::format(
      "sequences have {} tokens, but the model attends to the last {} only (model.window)", seq_len,
      config.window);
}

std::optional<AttentionKind> Model::attention() const {
  if (config.family->attention == nullptr) return std::nullopt;
  if (numerics.attention != AttentionKind::kFastest) return numerics.attention;
  return FastestAttention(config.query_size(), numerics);
}

namespace {

int64_t CountOf(const ParamSpec& param) {
  int64_t count = 1;
  for (int64_t size : param.shape) count *= size;
  return count;
}

}  // namespace

int64_t Model::parameter_count() const {
  int64_t sum = 0;
  for (const ParamSpec& param : params) sum += CountOf(param);
  return sum;
}

int64_t Model::trained_count() const {
  int64_t sum = 0;
  for (const ParamSpec& param : params) sum += param.trainable ? CountOf(param) : 0;
  return sum;
}

Result<Model> MakeModel(const ModelConfig& config, const BatchConfig& batch,
                        const StepNumerics& given) {
  StepNumerics numerics = given;
  HEDDLE_RETURN_IF_ERROR(CheckConfig(config));
  HEDDLE_RETURN_IF_ERROR(CheckBatch(config, batch));
  HEDDLE_RETURN_IF_ERROR(ChooseMath(config, batch, numerics));
  Model model{config, batch, numerics, {}, {}, {}, {}, {}, {}, {}};
  FamilyParts parts = config.family->make(config, batch);
  model.params = WithAdapters(config.lora, std::move(parts.params));
  if (config.lora.rank > 0)
    model.numerics.adapter_scale = numerics.adapter_scale =
        config.lora.alpha / static_cast<double>(config.lora.rank);
  HEDDLE_RETURN_IF_ERROR(CheckParams(model.params));
  model.inputs = std::move(parts.buffers);
  if (batch.documents)
    model.inputs.push_back({std::string(kDocumentPositions),
                            InputRole::kBatch,
                            DType::kI64,
                            {batch.batch, batch.seq_len}});
  if (numerics.loss_divisor == LossDivisor::kGiven) {
    for (const StepInput& input : std::vector(model.inputs)) {
      if (IsState(input) && config.moe.bias_rate > 0)
        model.inputs.push_back(
            {input.name + std::string(kSeenSuffix), InputRole::kBuffer, DType::kI64, input.shape});
    }
    model.inputs.push_back({std::string(kTokenCount), InputRole::kHyper, DType::kF32, {}});
  }
  model.inputs.push_back({"tokens", InputRole::kBatch, DType::kI64, {batch.batch, batch.seq_len}});
  model.inputs.push_back({"labels", InputRole::kBatch, DType::kI64, {batch.batch, batch.seq_len}});
  // Captures copies of the specs, so that the functions can outlive the model.
  auto run = [specs = model.params, inputs = model.inputs, numerics,
              logits = std::move(parts.logits)](std::span<const at::Tensor> params,
                                                std::span<const at::Tensor> given,
                                                AttentionCache* cache = nullptr) {
    ModelWeights weights(specs, params, inputs, given, numerics);
    weights.Continue(cache);
    at::Tensor result = logits(weights, given[given.size() - 2]);
    return std::pair(result, std::move(weights));
  };
  model.logits = [run](std::span<const at::Tensor> params, std::span<const at::Tensor> given) {
    return run(params, given).first;
  };
  model.next_logits = [run](std::span<const at::Tensor> params, std::span<const at::Tensor> given,
                            AttentionCache& cache) {
    cache.Begin(given[given.size() - 2].size(1));
    return run(params, given, &cache).first.slice(1, -1);
  };
  model.loss_sum = [run, z_loss = numerics.z_loss](std::span<const at::Tensor> params,
                                                   std::span<const at::Tensor> given) {
    auto [logits, weights] = run(params, given);
    at::Tensor loss = SummedLoss(logits, given[given.size() - 1], z_loss);
    return StepResult{weights.WithLossTerms(loss), weights.TakeChanges(), weights.TakeMetrics()};
  };
  model.loss = [sum = model.loss_sum, numerics](std::span<const at::Tensor> params,
                                                std::span<const at::Tensor> given) {
    return Divided(sum(params, given).loss, given, numerics.loss_divisor);
  };
  model.buffer_rule = [moe = config.moe](const at::Tensor& bias, const at::Tensor& counts) {
    return BalancedBias(moe, bias, counts);
  };
  return model;
}

const StepInput* FindBuffer(const Model& model, std::string_view name) {
  for (const StepInput& input : model.inputs) {
    if (input.role == InputRole::kBuffer && input.name == name) return &input;
  }
  return nullptr;
}

bool IsState(const StepInput& input) {
  return input.role == InputRole::kBuffer && input.name.ends_with(".expert_bias_E");
}

at::Tensor MakeBuffer(const Model& model, const StepInput& buffer) {
  if (auto given = model.state.find(buffer.name); given != model.state.end()) return given->second;
  double factor = model.config.rope.attention_factor;
  if (buffer.name == "rope") {
    int64_t size =
        model.config.mla.kv_rank > 0 ? model.config.mla.rope_dim : model.config.head_size();
    at::Tensor angles = Rotations(model, size);
    return at::polar(at::full_like(angles, factor), angles);
  }
  if (buffer.name.starts_with("rope_")) {
    bool local = buffer.name.starts_with("rope_local");
    at::Tensor angles =
        local ? RopeAngles(RopeFrequencies(model.config.head_size(), model.config.rope.local_theta),
                           model.batch.seq_len)
              : Rotations(model, model.config.head_size());
    angles = at::cat({angles, angles}, -1);
    angles = buffer.name.ends_with("_cos") ? angles.cos() : angles.sin();
    return local ? angles : angles * factor;
  }
  if (buffer.name == kPositionIds) return at::arange(buffer.shape[0]);
  return at::zeros(buffer.shape, ToScalarType(buffer.dtype));
}

Result<Module> CaptureModel(const Model& model, const std::optional<OptimizerOptions>& optimizer) {
  CaptureOptions options;
  options.optimizer = optimizer;
  return CaptureModel(model, options);
}

Result<Module> CaptureModel(const Model& model, CaptureOptions options) {
  if (model.numerics.compute == DType::kF64) options.param_dtype = DType::kF64;
  if (model.numerics.target == Target::kCuda && options.param_dtype == DType::kF32)
    options.lr_on_device = true;
  auto step = [&model](std::span<const at::Tensor> params, std::span<const at::Tensor> given) {
    StepResult result = model.loss_sum(params, given);
    result.loss = Divided(result.loss, given, model.numerics.loss_divisor);
    return result;
  };
  return Capture(step, model.buffer_rule, model.params, model.inputs, options);
}

}  // namespace heddle::run
