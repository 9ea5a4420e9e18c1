// The compiled graphs of a job: the step, the earlier micro-batches, and validation.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "heddle/api/planned_step.h"
#include "heddle/run/train/session.h"
#include "heddle/search/compile_settings.h"

namespace heddle {

struct StepGraphOptions {
  const ModelOptions& model;
  const ParallelOptions& parallel;
  const search::CompileSettings& compile;
  run::OptimizerOptions optimizer;
  // Sequences per step; 0: one micro-batch.
  int64_t global_batch = 0;
  bool validates = false;
  // Adds metrics of the step to its outputs, such as the load of experts.
  bool metrics = false;
  // Measures the memory of every pass.
  bool measure = false;
  // Called when the step is compiled.
  std::function<void(const compile::CompileReport&)> on_compiled = {};
};

// With several micro-batches, `first` runs the first, `more` those between, and `step` the last.
struct StepGraphs {
  Module step;
  std::optional<Module> first = {};
  std::optional<Module> more = {};
  std::optional<Module> forward = {};

  run::StepModules modules() const {
    auto pointer = [](const std::optional<Module>& module) { return module ? &*module : nullptr; };
    return {&step, pointer(first), pointer(more), pointer(forward)};
  }
};

struct CompiledStep {
  PlannedStep planned;
  // The complete plan, with decisions of flags and searches. All graphs use it.
  compile::Plan plan;
  // Options of the compilation. Their manager points to `costs`.
  std::unique_ptr<const price::CostModel> costs;
  compile::CompileOptions options;
  // The report on the step.
  compile::CompileReport report;
  StepGraphs graphs;
};

Result<CompiledStep> CompileStep(const StepGraphOptions& options);

// Compiles one graph for each kind of micro-batch, and for validation. `compile` captures and
// compiles one graph.
struct PassCaptures {
  int64_t micro_batches = 1;
  run::OptimizerOptions optimizer;
  bool metrics = false;
  bool validates = false;
};
Result<StepGraphs> CompilePasses(
    const PassCaptures& captures,
    const std::function<Result<Module>(const run::CaptureOptions& capture)>& compile);

}  // namespace heddle
