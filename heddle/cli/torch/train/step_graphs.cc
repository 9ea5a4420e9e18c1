#include "heddle/cli/torch/train/step_graphs.h"

namespace heddle {
namespace {

struct CompiledGraph {
  PlannedStep planned;
  CompileReport report;
  Module module;
};

Result<CompiledGraph> CompileGraph(const StepGraphOptions& options, const CaptureOptions& capture,
                                   bool accumulates, bool measure, const Streams& streams) {
  HEDDLE_TRY(PlannedStep planned,
             PlanStep(options.model, options.parallel, streams, capture,
                      accumulates ? LossDivisor::kGiven : std::optional<LossDivisor>()));
  HEDDLE_TRY(CompileOptions compile,
             options.compile.Options(FormatPlan(planned.plan), /*want_text=*/false));
  compile.notes = planned.layout.notes;
  compile.manager.measure = measure;
  Module module = planned.module;
  HEDDLE_TRY(CompileReport report, Compile(module, compile));
  return CompiledGraph{std::move(planned), std::move(report), std::move(module)};
}

}  // namespace

Result<StepGraphs> CompileStepGraphs(const StepGraphOptions& options, const Streams& streams) {
  HEDDLE_TRY(ParallelFlags::Layout layout, LayoutFor(options.model, options.parallel, streams));
  HEDDLE_TRY(int64_t accumulated,
             options.job.Accumulated(options.model.local_batch_size * layout.batch_ranks));
  bool accumulates = accumulated > 1;
  auto compiled = [&](const CaptureOptions& capture) -> Result<Module> {
    HEDDLE_TRY(CompiledGraph graph,
               CompileGraph(options, capture, accumulates, /*measure=*/false, streams));
    return std::move(graph.module);
  };
  CaptureOptions capture;
  capture.optimizer = options.optimizer;
  capture.accumulate = accumulates;
  capture.metrics = options.metrics;
  HEDDLE_TRY(CompiledGraph step,
             CompileGraph(options, capture, accumulates, options.measure, streams));
  options.compile.Print(step.report, streams);
  StepGraphs graphs{std::move(step.planned), std::move(step.report), std::move(step.module)};
  graphs.accumulated = accumulated;
  capture.optimizer.reset();
  if (accumulated > 2) {
    HEDDLE_TRY(graphs.more, compiled(capture));
  }
  if (accumulates) {
    capture.accumulate = false;
    HEDDLE_TRY(graphs.first, compiled(capture));
  }
  if (options.job.validation_interval > 0) {
    HEDDLE_TRY(graphs.forward, compiled({.forward_only = true}));
  }
  return graphs;
}

}  // namespace heddle
