// Model: the weights and inputs of a model by name, and the loss of one step.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "heddle/run/models/family.h"

namespace heddle::run {

// The input that contains the divisor of the loss, for LossDivisor::kGiven.
inline constexpr std::string_view kTokenCount = "token_count";

// One step of a model, ready to be captured or run.
struct Model {
  ModelConfig config;
  BatchConfig batch;
  StepNumerics numerics;
  // In registration order.
  std::vector<ParamSpec> params;
  // Buffers first, then kDocumentPositions and the divisor of the loss if they are given, then
  // `tokens` and `labels`.
  std::vector<StepInput> inputs;
  // Returns [batch, positions, vocabulary].
  StepFunction logits;
  // Continues the sequences in a cache by all tokens of the inputs, and returns the logits of the
  // last, [batch, 1, vocabulary]. A cache with positions takes one more at a time.
  std::function<at::Tensor(std::span<const at::Tensor> params, std::span<const at::Tensor> inputs,
                           AttentionCache& cache)>
      next_logits;
  // Returns the summed cross entropy of the tokens whose label counts, divided by the loss divisor.
  StepFunction loss;
  // Returns the sum without the division, and the buffers that the step changes.
  ChangingStep loss_sum;
  // Computes the next values of buffers.
  BufferRule buffer_rule;
  // Buffers that were loaded from files, by name. MakeBuffer returns them.
  std::map<std::string, at::Tensor> state = {};

  // Returns the attention kernel, never kFastest; nullopt for a family without attention.
  std::optional<AttentionKind> attention() const;
  // Number of elements of all parameters, and of the trained parameters.
  int64_t parameter_count() const;
  int64_t trained_count() const;
};

// Returns why the model needs attention composed of matmuls and a softmax, as the first part of a
// sentence; empty if it does not.
std::string WhyMathOnly(const ModelConfig& config, int64_t seq_len);

// Fails for sizes that do not fit together.
Result<Model> MakeModel(const ModelConfig& config, const BatchConfig& batch,
                        const StepNumerics& numerics);

// Captures the step as a graph. Parameters are f32, or f64 if the step computes in f64.
Result<Module> CaptureModel(const Model& model,
                            const std::optional<OptimizerOptions>& optimizer = std::nullopt);
Result<Module> CaptureModel(const Model& model, CaptureOptions options);

// Returns the buffer of this name; null if the model has none.
const StepInput* FindBuffer(const Model& model, std::string_view name);
// Whether a buffer belongs to the weights of a model. Biases of experts do; rotation tables do not.
bool IsState(const StepInput& input);
// Returns the values of a buffer of the model: rotation tables, biases of experts.
at::Tensor MakeBuffer(const Model& model, const StepInput& buffer);

}  // namespace heddle::run
