// Captures a step and makes its plan from options.
#pragma once

#include <optional>

#include "heddle/api/model_options.h"
#include "heddle/api/parallel_options.h"
#include "heddle/core/base/units.h"
#include "heddle/search/find_placements.h"

namespace heddle {

struct PlannedStep {
  // The model for one micro-batch of the step.
  run::Model model;
  ParallelOptions::Layout layout;
  // The captured graph.
  Module module;
  // Always states the batch.
  compile::Plan plan;
  // If the plan contains `auto`: the plans that the search must beat.
  std::vector<search::RivalPlan> rivals = {};
  Nanos capture;

  // Runs of the graph per step, and micro-batches of each run of a pipeline.
  int64_t micro_batches() const { return plan.decisions.batch->micro_batches; }
  int64_t pipeline_micro_batches() const {
    return plan.decisions.stages ? plan.decisions.stages->micro_batches : 1;
  }
  // Sequences of the whole step on all ranks.
  int64_t sequences() const {
    return micro_batches() * pipeline_micro_batches() * model.batch.batch;
  }
};

// Captures a micro-batch of the step, for a plan from a file or from degrees. `local_batch_size` is
// the number of sequences per rank of `batch_ranks`. `global_batch` is the number of sequences of
// the whole step, if not
// 0. `capture.accumulate` applies only if the step has several micro-batches.
Result<PlannedStep> PlanStep(const ModelOptions& model, const ParallelOptions& parallel,
                             const run::CaptureOptions& capture, int64_t global_batch = 0);
// Captures a step for automatic placements on the mesh of `layout`: with a plan that contains
// `auto`, and the presets that it must beat.
Result<PlannedStep> PlanAutoStep(const ModelOptions& model, const ParallelOptions& parallel,
                                 ParallelOptions::Layout layout,
                                 const run::CaptureOptions& capture);
// Captures a step for a given plan. Fails if flags contradict its batch.
Result<PlannedStep> PlanStep(const ModelOptions& model, const compile::Plan& plan,
                             const run::CaptureOptions& capture, int64_t global_batch = 0);
// Captures another graph of a planned step, such as validation.
Result<PlannedStep> PlanPass(const ModelOptions& model, const compile::Plan& plan,
                             const run::CaptureOptions& capture);

// Whether context-parallel ranks gather the latents that keys and values come from.
bool GathersLatents(const compile::Plan& plan);

}  // namespace heddle
