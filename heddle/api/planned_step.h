// From options to a captured step and its plan.
#pragma once

#include <optional>

#include "heddle/api/model_options.h"
#include "heddle/api/parallel_options.h"
#include "heddle/core/base/units.h"
#include "heddle/search/find_placements.h"

namespace heddle {

struct PlannedStep {
  // For one pass: a micro-batch of the step.
  run::Model model;
  ParallelOptions::Layout layout;
  // As captured.
  Module module;
  // It states the batch.
  compile::Plan plan;
  // For a plan that is still to be found: what it has to beat.
  std::vector<search::RivalPlan> rivals = {};
  Nanos capture;

  int64_t micro_batches() const { return plan.decisions.batch->micro_batches; }
};

// Captures a pass of the step, for a plan in a file or by degrees. `local_batch_size` counts for
// each of its `batch_ranks`; a `global_batch` other than 0 is the sequences of the whole step.
// `capture.accumulate` counts only where the step has several micro-batches.
Result<PlannedStep> PlanStep(const ModelOptions& model, const ParallelOptions& parallel,
                             const run::CaptureOptions& capture, int64_t global_batch = 0);
// For placements that are to be found on the mesh of `layout`: a plan that says `auto`, and the
// presets that it must beat.
Result<PlannedStep> PlanAutoStep(const ModelOptions& model, const ParallelOptions& parallel,
                                 ParallelOptions::Layout layout,
                                 const run::CaptureOptions& capture);
// For a plan. Fails if flags contradict its batch.
Result<PlannedStep> PlanStep(const ModelOptions& model, const compile::Plan& plan,
                             const run::CaptureOptions& capture, int64_t global_batch = 0);
// Another pass of a step that was planned already.
Result<PlannedStep> PlanPass(const ModelOptions& model, const compile::Plan& plan,
                             const run::CaptureOptions& capture);

}  // namespace heddle
