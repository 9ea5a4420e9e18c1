// The flags of a model, its batch and its numerics. TorchTitan's spelling where it has one.
#pragma once

#include <optional>
#include <vector>

#include "heddle/api/model_options.h"
#include "heddle/cli/flags.h"

namespace heddle {

struct ModelFlags : ModelOptions {
  // The model alone, its sizes and initial weights.
  void DeclareModel(Flags& flags);
  // Also batch, numerics and device. `of_cluster`, unless null, must outlive this.
  void Declare(Flags& flags, const std::string* of_cluster = nullptr);
  // For a job file: which model, and its numerics. The batch and, unless the user gave it, the
  // device are left out.
  std::vector<JobLine> JobLines() const;
};

// Whether the captured step includes the optimizer: clipping by global norm (1.0) and AdamW.
struct OptimizerFlags {
  bool with = false;
  bool without = false;

  void Declare(Flags& flags);
  // None: without. Fails if the flags contradict each other.
  Result<std::optional<run::OptimizerOptions>> Choose() const;
};

}  // namespace heddle
