#include "heddle/api/step_graphs.h"

namespace heddle {

Result<StepGraphs> CompilePasses(
    const PassCaptures& captures,
    const std::function<Result<Module>(const run::CaptureOptions& capture)>& compile) {
  StepGraphs graphs;
  run::CaptureOptions capture;
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
  run::CaptureOptions capture;
  capture.optimizer = options.optimizer;
  capture.accumulate = true;
  capture.metrics = options.metrics;
  HEDDLE_TRY(PlannedStep planned,
             PlanStep(options.model, options.parallel, capture, options.global_batch));
  HEDDLE_TRY(search::CompileJob job, options.compile.JobFor(planned.plan));
  HEDDLE_TRY(price::CostModel model, search::CostsFor(job.plan));
  auto costs = std::make_unique<const price::CostModel>(std::move(model));
  compile::CompileOptions& how = job.options;
  const std::vector<std::string>& notes = planned.layout.notes;
  how.notes.insert(how.notes.begin(), notes.begin(), notes.end());
  how.manager.measure = options.measure;
  how.manager.costs = costs.get();
  search::PlanRequest request;
  request.cluster = job.plan.decisions.cluster.value_or(request.cluster);
  request.offloads = planned.model.numerics.target == run::Target::kCuda;
  HEDDLE_TRY(search::FoundPlan found, search::FindPlan(planned.module, job.plan, request, how));
  Module step = planned.module;
  HEDDLE_TRY(compile::CompileReport report, compile::Compile(step, found.plan, how));
  if (options.on_compiled) options.on_compiled(report);
  // Compiles further graphs with the plan of the step.
  auto compile = [&](const run::CaptureOptions& other) -> Result<Module> {
    if (other.optimizer) return std::move(step);
    HEDDLE_TRY(PlannedStep pass, PlanPass(options.model, found.plan, other));
    HEDDLE_RETURN_IF_ERROR(compile::Compile(pass.module, found.plan, how));
    return std::move(pass.module);
  };
  HEDDLE_TRY(StepGraphs graphs, CompilePasses({.micro_batches = planned.micro_batches(),
                                               .optimizer = options.optimizer,
                                               .metrics = options.metrics,
                                               .validates = options.validates},
                                              compile));
  return CompiledStep{std::move(planned), std::move(found.plan), std::move(costs),
                      std::move(how),     std::move(report),     std::move(graphs)};
}

}  // namespace heddle
