// A model: its weights and inputs by name, and the loss of one step.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "heddle/models/config.h"
#include "heddle/models/layers.h"

namespace heddle {

struct BatchConfig {
  // Sequences and their length, of the whole mesh.
  int64_t batch = 1;
  int64_t seq_len = 2048;
};

// One step of a model, ready to be captured or run.
struct Model {
  ModelConfig config;
  BatchConfig batch;
  StepNumerics numerics;
  // In registration order.
  std::vector<ParamSpec> params;
  // Buffers first, then `tokens` and `labels`.
  std::vector<StepInput> inputs;
  StepFunction loss;

  // All elements of all parameters.
  int64_t parameter_count() const;
};

// Fails for sizes that do not fit together.
Result<Model> MakeModel(const ModelConfig& config, const BatchConfig& batch,
                        const StepNumerics& numerics);

// The step as a graph. Parameters are f32, or f64 where the step computes in f64.
Result<Module> CaptureModel(const Model& model,
                            const std::optional<OptimizerOptions>& optimizer = std::nullopt);

// The values of a buffer of the model: tables of rotations, biases of experts.
at::Tensor MakeBuffer(const Model& model, const StepInput& buffer);

// --- For the family files: a family adds its parameters in registration order and gives a function from tokens to logits.
struct FamilyParts {
  std::vector<ParamSpec> params;
  std::vector<StepInput> buffers;
  std::function<at::Tensor(const Weights&, const at::Tensor& tokens)> logits;
};
FamilyParts MakeLlama3(const ModelConfig& config, const BatchConfig& batch);
FamilyParts MakeQwen3(const ModelConfig& config, const BatchConfig& batch);
FamilyParts MakeDeepSeekV3(const ModelConfig& config, const BatchConfig& batch);
FamilyParts MakeToy(const ModelConfig& config, const BatchConfig& batch);

// Collects parameters under a prefix.
class ParamList {
 public:
  void Add(const std::string& name, std::vector<int64_t> shape, const std::string& unit) {
    params_.push_back({name, std::move(shape), unit});
  }
  std::vector<ParamSpec> Take() { return std::move(params_); }

 private:
  std::vector<ParamSpec> params_;
};

// Names of FSDP units: each block is one; the embedding; the final norm with the output. Tied weights make one of the last two.
std::string BlockUnit(int64_t layer);
std::string EmbeddingUnit(const ModelConfig& config);
std::string OutputUnit(const ModelConfig& config);

// What decoder models share: embedding, blocks, norm, output.
void AddEmbedding(ParamList& params, const ModelConfig& config);
void AddOutput(ParamList& params, const ModelConfig& config);
// wq, wk, wv and wo of grouped-query attention, in module `attention`.
void AddAttention(ParamList& params, const ModelConfig& config, const std::string& unit);
void AddFeedForward(ParamList& params, const std::string& prefix, int64_t dim, int64_t hidden,
                    const std::string& unit);
using BlockFunction = std::function<at::Tensor(const Weights&, const at::Tensor& x, int64_t layer)>;
at::Tensor Decoder(const Weights& weights, const ModelConfig& config, const at::Tensor& tokens,
                   const BlockFunction& block);

// The mixture of experts of one block, in module `moe`.
void AddMoe(ParamList& params, const std::string& prefix, const ModelConfig& config,
            const std::string& unit);
at::Tensor Moe(const Weights& weights, const ModelConfig& config, const at::Tensor& x,
               const std::optional<at::Tensor>& bias);
std::string ExpertBiasName(int64_t layer);

}  // namespace heddle
