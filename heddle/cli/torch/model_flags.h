// The flags that say which model, batch and numerics a command is about. TorchTitan's spelling where it has one.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "heddle/cli/flags.h"
#include "heddle/models/model.h"
#include "heddle/train/session.h"

namespace heddle {

struct ModelFlags {
  std::string model = "llama3";
  std::string flavor = "debugmodel";
  int64_t local_batch_size = 1;
  int64_t seq_len = 2048;
  std::string precision = "bf16";
  std::string attention = "fastest";
  std::string device = "cpu";
  // Same bits in every run. Commands that run a step set it; planning predicts the fastest kernels.
  bool deterministic = false;
  std::string loss_divisor = "valid_tokens";
  double z_loss = 0;
  double aux_loss = 0;
  std::string load_path;
  // By their names in ModelConfig; what is not given is the flavor's.
  std::map<std::string, std::optional<int64_t>> sizes;
  std::map<std::string, std::optional<double>> numbers;
  std::map<std::string, std::string> choices;
  std::string device_flag;
  std::shared_ptr<const GivenFlags> given = {};

  // The model alone, its sizes and initial weights.
  void DeclareModel(Flags& flags);
  // Also batch, numerics and device. Commands that run the model call the device's flag
  // `--runtime.device`.
  void Declare(Flags& flags, std::string_view device_flag = "--device");
  Result<Target> ChooseTarget() const;
  // The device of the rank with this number on its machine, in exact mode (train/exact.h) if `deterministic` is set.
  Result<c10::Device> Open(int64_t local_rank) const;
  // For commands that load no weights: only --model=hf takes anything from the path.
  Status CheckNoWeights() const;
  // The first weights: those at the path, or random ones. The model must outlive the source.
  Result<ParamSource> Params(Model& model, uint64_t seed) const;
  // For a job file: which model, and its numerics. The batch and, unless the user gave it, the
  // device are left out.
  std::vector<JobLine> JobLines() const;
  // The sizes and constants alone.
  Result<ModelConfig> Config() const;
  // The model for a batch of local_batch_size on each of `batch_ranks` ranks; with sequence parallelism norms work apart
  // (StepNumerics). `divisor`: instead of loss_divisor.
  Result<Model> Make(int64_t batch_ranks = 1, bool sequence_parallel = false,
                     std::optional<LossDivisor> divisor = std::nullopt) const;
  // The same with these sizes and constants.
  Result<Model> MakeWith(const ModelConfig& config, int64_t batch_ranks = 1,
                         bool sequence_parallel = false,
                         std::optional<LossDivisor> divisor = std::nullopt) const;
};

}  // namespace heddle
