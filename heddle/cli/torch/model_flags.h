// The flags that say which model, batch and numerics a command is about. TorchTitan's spelling where it has one.
#pragma once

#include <map>
#include <optional>

#include "heddle/cli/flags.h"
#include "heddle/models/model.h"

namespace heddle {

struct ModelFlags {
  std::string model = "llama3";
  std::string flavor = "debugmodel";
  int64_t local_batch_size = 1;
  int64_t seq_len = 2048;
  std::string precision = "bf16";
  std::string attention = "flash";
  std::string device = "cpu";
  std::string loss_divisor = "valid_tokens";
  std::map<std::string, std::optional<int64_t>> sizes;

  void Declare(Flags& flags);
  // The sizes alone.
  Result<ModelConfig> Config() const;
  // The model for a batch of local_batch_size on each of `batch_ranks` ranks; with sequence parallelism norms work apart
  // (StepNumerics). `divisor`: instead of loss_divisor.
  Result<Model> Make(int64_t batch_ranks = 1, bool sequence_parallel = false,
                     std::optional<LossDivisor> divisor = std::nullopt) const;
};

}  // namespace heddle
