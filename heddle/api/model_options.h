// Options of the model, its batch and its numerics. Error messages call a field by its flag.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "heddle/run/models/model.h"
#include "heddle/run/train/session.h"

namespace heddle {

inline constexpr std::string_view kDeviceFlag = "--runtime.device";

struct ModelOptions {
  std::string model = "llama3";
  std::string flavor = "debugmodel";
  int64_t local_batch_size = 1;
  int64_t seq_len = 2048;
  DType precision = DType::kBF16;
  run::AttentionKind attention = run::AttentionKind::kFastest;
  // Unset: the device of the cluster, or the CPU without a cluster.
  std::optional<run::Target> device = {};
  // Requires the same bits in every run. Commands that run a step set it; planning predicts the
  // fastest kernels.
  bool deterministic = false;
  // Attention does not cross the boundaries of documents.
  bool document_attention = false;
  // Ranks split queries by position, or have some heads of all positions.
  bool splits_queries = false;
  bool splits_heads = false;
  run::LossDivisor loss_divisor = run::LossDivisor::kValidTokens;
  double z_loss = 0;
  double aux_loss = 0;
  std::string load_path = {};
  // Overrides of the flavor's values, by their names in ModelConfig.
  std::map<std::string, std::optional<int64_t>> sizes = {};
  std::map<std::string, std::optional<double>> numbers = {};
  std::map<std::string, std::string> choices = {};
  std::map<std::string, std::optional<bool>> switches = {};
  // The cluster whose device is the default, by name or file; null: the CPU.
  const std::string* cluster = nullptr;
  // Whether the user set the field of this flag. Such a field must not contradict a plan.
  std::function<bool(std::string_view flag)> given = nullptr;

  // Whether the loss is the mean cross entropy of the tokens whose label counts, and nothing else.
  bool LossIsCrossEntropy() const {
    return z_loss == 0 && aux_loss == 0 && loss_divisor == run::LossDivisor::kValidTokens;
  }
  Result<run::Target> ChooseTarget() const;
  // The name of the target, such as `cuda`.
  Result<std::string> DeviceName() const;
  // Opens the device of the rank with this number on its machine. `deterministic` turns on exact
  // mode (train/exact.h).
  Result<c10::Device> Open(int64_t local_rank) const;
  // For commands that run the model: returns a note if the default device is the CPU although the
  // machine has a GPU; otherwise an empty string.
  std::string DeviceNote(bool machine_has_gpu) const;
  // For commands that load no weights: fails if a path is given, unless --model=hf reads its
  // config.
  Status CheckNoWeights() const;
  // Fails if no kernel supports the numerics.
  Result<run::StepNumerics> Numerics(const run::ModelConfig& config) const;
  // Returns the first weights: those at the path, or random ones. The model must outlive the
  // result.
  Result<run::ParamSource> Params(run::Model& model, uint64_t seed) const;
  // Returns the sizes and constants only.
  Result<run::ModelConfig> Config() const;
  // Returns the model for a batch of local_batch_size on each of `batch_ranks` ranks. With sequence
  // parallelism, gradients of norms are summed separately (StepNumerics). `divisor` replaces
  // loss_divisor.
  Result<run::Model> Make(int64_t batch_ranks = 1, bool sequence_parallel = false,
                          std::optional<run::LossDivisor> divisor = std::nullopt) const;
  // The same with the given sizes and constants.
  Result<run::Model> MakeWith(const run::ModelConfig& config, int64_t batch_ranks = 1,
                              bool sequence_parallel = false,
                              std::optional<run::LossDivisor> divisor = std::nullopt) const;
};

}  // namespace heddle
