// Which model a job is about, its batch and its numerics. Messages name the fields by the flags
// that set them.
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
  // None: that of the cluster, or the CPU without a cluster.
  std::optional<run::Target> device = {};
  // Same bits in every run. Commands that run a step set it; planning predicts the fastest kernels.
  bool deterministic = false;
  run::LossDivisor loss_divisor = run::LossDivisor::kValidTokens;
  double z_loss = 0;
  double aux_loss = 0;
  std::string load_path = {};
  // By their names in ModelConfig; what is not given is the flavor's.
  std::map<std::string, std::optional<int64_t>> sizes = {};
  std::map<std::string, std::optional<double>> numbers = {};
  std::map<std::string, std::string> choices = {};
  std::map<std::string, std::optional<bool>> switches = {};
  // The cluster whose device is the default, by name or file; null: the CPU.
  const std::string* cluster = nullptr;
  // Whether the user set a field, by its flag. Such a field must not contradict a plan.
  std::function<bool(std::string_view flag)> given = nullptr;

  Result<run::Target> ChooseTarget() const;
  // `cuda`: the name of the target.
  Result<std::string> DeviceName() const;
  // The device of the rank with this number on its machine, in exact mode (train/exact.h) if
  // `deterministic` is set.
  Result<c10::Device> Open(int64_t local_rank) const;
  // For commands that run the model: the CPU computes by default although the machine has a GPU.
  // Empty unless that is so.
  std::string DeviceNote(bool machine_has_gpu) const;
  // For commands that load no weights: only --model=hf takes anything from the path.
  Status CheckNoWeights() const;
  // The first weights: those at the path, or random ones. The model must outlive the source.
  Result<run::ParamSource> Params(run::Model& model, uint64_t seed) const;
  // The sizes and constants alone.
  Result<run::ModelConfig> Config() const;
  // The model for a batch of local_batch_size on each of `batch_ranks` ranks. With sequence
  // parallelism norms work apart (StepNumerics). `divisor` replaces loss_divisor.
  Result<run::Model> Make(int64_t batch_ranks = 1, bool sequence_parallel = false,
                          std::optional<run::LossDivisor> divisor = std::nullopt) const;
  // The same with these sizes and constants.
  Result<run::Model> MakeWith(const run::ModelConfig& config, int64_t batch_ranks = 1,
                              bool sequence_parallel = false,
                              std::optional<run::LossDivisor> divisor = std::nullopt) const;
};

}  // namespace heddle
