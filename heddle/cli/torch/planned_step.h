// From the flags of a command to a captured step and its plan: what the commands that spread steps over ranks share.
#pragma once

#include <optional>

#include "heddle/base/units.h"
#include "heddle/cli/torch/model_flags.h"
#include "heddle/cli/torch/parallel_flags.h"

namespace heddle {

struct PlannedStep {
  Model model;
  ParallelFlags::Layout layout;
  // As captured.
  Module module;
  Plan plan;
  Nanos capture;
};

// `divisor`: instead of what the flags say the loss is divided by.
Result<PlannedStep> PlanStep(const ModelFlags& model, const ParallelFlags& parallel,
                             const CaptureOptions& capture,
                             std::optional<LossDivisor> divisor = std::nullopt);

}  // namespace heddle
