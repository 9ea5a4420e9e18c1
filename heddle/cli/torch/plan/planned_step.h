// From the flags of a command to a captured step and its plan: what the commands that spread steps over ranks share.
#pragma once

#include <optional>

#include "heddle/base/units.h"
#include "heddle/cli/cli.h"
#include "heddle/cli/torch/model_flags.h"
#include "heddle/cli/torch/parallel_flags.h"
#include "heddle/cli/torch/plan/auto_flags.h"

namespace heddle {

struct PlannedStep {
  // For one pass: a micro-batch of the step.
  Model model;
  ParallelFlags::Layout layout;
  // As captured.
  Module module;
  // It states the batch.
  Plan plan;
  // For a plan that is still to be found: what it has to beat.
  std::vector<RivalPlan> rivals = {};
  Nanos capture;

  int64_t micro_batches() const { return plan.decisions.batch->micro_batches; }
};

// Captures a pass of the step, for a plan in a file or by degrees. `local_batch_size` counts for
// each of its `batch_ranks`; a `global_batch` other than 0 is the sequences of the whole step.
// `capture.accumulate` counts only where the step has several micro-batches.
Result<PlannedStep> PlanStep(const ModelFlags& model, const ParallelFlags& parallel,
                             const Streams& streams, const CaptureOptions& capture,
                             int64_t global_batch = 0);
// With a plan that says `auto`, if the flags ask for one.
Result<PlannedStep> PlanStep(const ModelFlags& model, const ParallelFlags& parallel,
                             const AutoFlags& automatic, const Streams& streams,
                             const CaptureOptions& capture);
// For a plan. Fails if flags contradict its batch.
Result<PlannedStep> PlanStep(const ModelFlags& model, const Plan& plan,
                             const CaptureOptions& capture, int64_t global_batch = 0);
// Another pass of a step that was planned already.
Result<PlannedStep> PlanPass(const ModelFlags& model, const Plan& plan,
                             const CaptureOptions& capture);

}  // namespace heddle
