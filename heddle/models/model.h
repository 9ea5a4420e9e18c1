// A model: its weights and inputs by name, and the loss of one step.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/models/family.h"

namespace heddle {

// The input that the loss is divided by, where that is given.
inline constexpr std::string_view kTokenCount = "token_count";

// One step of a model, ready to be captured or run.
struct Model {
  ModelConfig config;
  BatchConfig batch;
  StepNumerics numerics;
  // In registration order.
  std::vector<ParamSpec> params;
  // Buffers first, then what the loss is divided by, if that is given, then `tokens` and `labels`.
  std::vector<StepInput> inputs;
  // [batch, positions, vocabulary].
  StepFunction logits;
  // The summed cross entropy of the tokens that count, and what it is divided by, as one.
  StepFunction loss;
  // The sum alone.
  StepFunction loss_sum;

  // All elements of all parameters.
  int64_t parameter_count() const;
};

// Fails for sizes that do not fit together.
Result<Model> MakeModel(const ModelConfig& config, const BatchConfig& batch,
                        const StepNumerics& numerics);

// The step as a graph. Parameters are f32, or f64 where the step computes in f64.
Result<Module> CaptureModel(const Model& model,
                            const std::optional<OptimizerOptions>& optimizer = std::nullopt);
Result<Module> CaptureModel(const Model& model, CaptureOptions options);

// The buffer of this name; null if the model has none.
const StepInput* FindBuffer(const Model& model, std::string_view name);
// The values of a buffer of the model: tables of rotations, biases of experts.
at::Tensor MakeBuffer(const Model& model, const StepInput& buffer);

}  // namespace heddle
