// The flags that say how a step is spread over ranks. TorchTitan's spelling where it has one.
#pragma once

#include "heddle/cli/flags.h"
#include "heddle/models/config.h"
#include "heddle/passes/parallel/presets.h"

namespace heddle {

struct ParallelFlags {
  int64_t replicate = 1;
  // -1: what the other degrees leave of the world.
  int64_t shard = 1;
  int64_t tensor = 1;
  // 0: the product of the degrees.
  int64_t world = 0;
  std::string sequence_parallel = "true";
  bool gather_logits = false;
  std::string axis_names = "dp_replicate,dp,tp";
  std::string gradients = "sum";
  std::string tensor_gradients = "narrow";

  void Declare(Flags& flags);

  struct Layout {
    Mesh mesh;
    PresetOptions preset;
    // Ranks that have different parts of the batch.
    int64_t batch_ranks = 1;
  };
  // Fails for degrees that do not multiply to the world, names that are used twice, and heads that do not divide.
  Result<Layout> MakeLayout(const ModelConfig& config) const;
  // How gradients are reduced.
  Status SetGradients(Plan& plan) const;
};

}  // namespace heddle
