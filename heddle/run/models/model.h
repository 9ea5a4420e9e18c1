// A model: its weights and inputs by name, and the loss of one step.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "heddle/run/models/family.h"

namespace heddle::run {

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
  // The sum alone, and what the step changes besides parameters.
  ChangingStep loss_sum;
  // How buffers change.
  BufferRule buffer_rule;
  // Buffers that files gave, by name; MakeBuffer gives them.
  std::map<std::string, at::Tensor> state = {};

  // The kernel that computes attention, never kFastest; nullopt for a family without attention.
  std::optional<AttentionKind> attention() const;
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
// Whether a buffer belongs to the weights of a model: biases of experts do, tables of rotations do not.
bool IsState(const StepInput& input);
// The values of a buffer of the model: tables of rotations, biases of experts.
at::Tensor MakeBuffer(const Model& model, const StepInput& buffer);

}  // namespace heddle::run
