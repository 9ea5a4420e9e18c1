// From the flags of a command to a captured step and its plan: what the commands that spread steps over ranks share.
#pragma once

#include <optional>

#include "heddle/base/units.h"
#include "heddle/cli/torch/model_flags.h"
#include "heddle/cli/torch/parallel_flags.h"
#include "heddle/cli/torch/plan/auto_flags.h"

namespace heddle {

struct PlannedStep {
  Model model;
  ParallelFlags::Layout layout;
  // As captured.
  Module module;
  Plan plan;
  // For a plan that is still to be found: what it has to beat.
  std::vector<RivalPlan> rivals = {};
  Nanos capture;
};

// Of a plan in a file, or by degrees. `local_batch_size` counts for each of its `batch_ranks`.
Result<ParallelFlags::Layout> LayoutFor(const ModelFlags& model, const ParallelFlags& parallel);
// `divisor`: instead of what the flags say the loss is divided by.
Result<PlannedStep> PlanStep(const ModelFlags& model, const ParallelFlags& parallel,
                             const CaptureOptions& capture,
                             std::optional<LossDivisor> divisor = std::nullopt);
// With a plan that says `auto`, if the flags ask for one.
Result<PlannedStep> PlanStep(const ModelFlags& model, const ParallelFlags& parallel,
                             const AutoFlags& automatic, const CaptureOptions& capture);
// For a plan that somebody wrote, or found.
Result<PlannedStep> PlanStep(const ModelFlags& model, const Plan& plan,
                             const CaptureOptions& capture,
                             std::optional<LossDivisor> divisor = std::nullopt);

}  // namespace heddle
