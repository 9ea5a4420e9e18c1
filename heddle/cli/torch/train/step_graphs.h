// The compiled graphs of a job: its step and, where the job needs them, the micro-batches before it
// and validation.
#pragma once

#include <memory>
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

// With several micro-batches, `first` runs the first one, `more` those between, `step` the last one.
struct StepGraphs {
  Module step;
  std::optional<Module> first = {};
  std::optional<Module> more = {};
  std::optional<Module> forward = {};

  StepModules modules() const {
    auto pointer = [](const std::optional<Module>& module) { return module ? &*module : nullptr; };
    return {&step, pointer(first), pointer(more), pointer(forward)};
  }
};

struct CompiledStep {
  PlannedStep planned;
  // With all that flags and searches decide. The other graphs follow it, too.
  Plan plan;
  // How they were compiled; `costs` is what its manager refers to.
  std::unique_ptr<const CostModel> costs;
  CompileOptions options;
  // Of the step.
  CompileReport report;
  StepGraphs graphs;
};

// Prints the remarks and notes of the step's compilation.
Result<CompiledStep> CompileStep(const StepGraphOptions& options, const Streams& streams);

// Compiles one graph for each pass through the model. `compile` takes the graph of one.
struct PassCaptures {
  int64_t micro_batches = 1;
  OptimizerOptions optimizer;
  bool metrics = false;
  bool validates = false;
};
Result<StepGraphs> CompilePasses(
    const PassCaptures& captures,
    const std::function<Result<Module>(const CaptureOptions& capture)>& compile);

}  // namespace heddle
