#include "heddle/api/step_graphs.h"

namespace heddle {

Result<CompileOptions> StandardCompile(const Plan& plan) {
  CompileOptions options;
  options.plan = FormatPlan(plan);
  options.pipeline = "fsdp";
  SetDecisions(plan.decisions, options);
  return options;
}

Result<StepGraphs> CompilePasses(
    const PassCaptures& captures,
    const std::function<Result<Module>(const CaptureOptions& capture)>& compile) {
  StepGraphs graphs;
  CaptureOptions capture;
  capture.optimizer = captures.optimizer;
  capture.accumulate = true;
  capture.metrics = captures.metrics;
  HEDDLE_TRY(graphs.step, compile(capture));
  capture.optimizer.reset();
  if (captures.micro_batches > 2) {
    HEDDLE_TRY(graphs.more, compile(capture));
  }
  if (captures.micro_batches > 1) {
    capture.accumulate = false;
    HEDDLE_TRY(graphs.first, compile(capture));
  }
  if (captures.validates) {
    HEDDLE_TRY(graphs.forward, compile({.forward_only = true}));
  }
  return graphs;
}

Result<CompiledStep> CompileStep(const StepGraphOptions& options) {
  CaptureOptions capture;
  capture.optimizer = options.optimizer;
  capture.accumulate = true;
  capture.metrics = options.metrics;
  HEDDLE_TRY(PlannedStep planned,
             PlanStep(options.model, options.parallel, capture, options.global_batch));
  HEDDLE_TRY(CompileOptions how, options.compile(planned.plan));
  const std::vector<std::string>& notes = planned.layout.notes;
  how.notes.insert(how.notes.begin(), notes.begin(), notes.end());
  how.manager.measure = options.measure;
  how.offloads = planned.model.numerics.target == Target::kCuda;
  Module step = planned.module;
  HEDDLE_TRY(CompileReport report, Compile(step, how));
  if (options.on_compiled) options.on_compiled(report);
  // The graphs that follow the plan of the step.
  auto compile = [&](const CaptureOptions& other) -> Result<Module> {
    if (other.optimizer) return std::move(step);
    HEDDLE_TRY(PlannedStep pass, PlanPass(options.model, report.plan, other));
    HEDDLE_TRY(CompileOptions same, options.compile(report.plan));
    HEDDLE_RETURN_IF_ERROR(Compile(pass.module, same));
    return std::move(pass.module);
  };
  HEDDLE_TRY(StepGraphs graphs, CompilePasses({.micro_batches = planned.micro_batches(),
                                               .optimizer = options.optimizer,
                                               .metrics = options.metrics,
                                               .validates = options.validates},
                                              compile));
  return CompiledStep{std::move(planned), std::move(report), std::move(graphs)};
}

}  // namespace heddle
