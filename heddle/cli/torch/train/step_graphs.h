// The compiled graphs of a job: its step and, where the job needs them, the micro-batches before it
// and validation.
#pragma once

#include <optional>

#include "heddle/cli/compile_flags.h"
#include "heddle/cli/torch/plan/planned_step.h"
#include "heddle/cli/torch/train/job_flags.h"
#include "heddle/compile/compile.h"
#include "heddle/train/session.h"

namespace heddle {

struct StepGraphOptions {
  const ModelFlags& model;
  const ParallelFlags& parallel;
  const CompileFlags& compile;
  const JobFlags& job;
  OptimizerOptions optimizer;
  // Adds what the graph measures (how often experts are used) to its outputs.
  bool metrics = false;
  // Measures the memory of every pass.
  bool measure = false;
};

struct StepGraphs {
  PlannedStep planned;
  // Of `step`.
  CompileReport report;
  Module step;
  std::optional<Module> first = {};
  std::optional<Module> more = {};
  std::optional<Module> forward = {};
  // Batches of a step.
  int64_t accumulated = 1;

  StepModules modules() const {
    auto pointer = [](const std::optional<Module>& module) { return module ? &*module : nullptr; };
    return {&step, pointer(first), pointer(more), pointer(forward)};
  }
};

// Prints the remarks of the step's compilation.
Result<StepGraphs> CompileStepGraphs(const StepGraphOptions& options, const Streams& streams);

}  // namespace heddle
