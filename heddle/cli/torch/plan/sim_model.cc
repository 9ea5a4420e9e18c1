// heddle sim --model: captures a model, plans it, and simulates its step, beside the same step with another pipeline.
#include "heddle/api/planned_step.h"
#include "heddle/cli/compile_flags.h"
#include "heddle/cli/sim_flags.h"
#include "heddle/cli/torch/commands.h"
#include "heddle/cli/torch/model_flags.h"
#include "heddle/cli/torch/parallel_flags.h"
#include "heddle/core/ir/program.h"

namespace heddle {
namespace {

struct SimModelCommand {
  static constexpr const char* kName = "sim";
  static constexpr const char* kWithFlag = "--model";
  static constexpr const char* kSummary =
      "Capture and plan a model and simulate its step on a cluster: time, exposed communication, "
      "memory, and the gain of the pipeline";
  static constexpr const char* kNote =
      "Allocates no weights and needs no device. docs/cost.md describes the cost model, "
      "docs/report.md the report of --html. With FILE instead of --model it simulates a graph.";
  static constexpr const char* kExamples =
      "heddle sim --model=llama3 --flavor=8B --parallelism.data_parallel_shard_degree=64 "
      "--html=sim.html";

  ModelFlags model;
  ParallelFlags parallel;
  CompileFlags compile{"fsdp"};
  OptimizerFlags optimizer;
  std::string against = "none";
  SimFlags sim;
  SimOutputs outputs;
  std::string job;

  void Declare(Flags& flags) {
    model.Declare(flags, &sim.cluster);
    parallel.Declare(flags);
    compile.Declare(flags, /*with_stage=*/false);
    compile.DeclareBudget(flags);
    optimizer.Declare(flags);
    flags.Option("--against", against,
                 "pipeline to compare with; the same one as --compile.pipeline: no comparison");
    sim.Declare(flags);
    outputs.Declare(flags);
    flags.Config(job);
  }
  ExitCode Run(const Streams& streams) const {
    Status status = Simulate(streams);
    return status.ok() ? ExitCode::kDone : Report(status.diagnostics(), streams);
  }

 private:
  Status Simulate(const Streams& streams) const;
  Result<run::CaptureOptions> Capture() const;
  Result<SimulatedModule> SimulateAsked(const PlannedStep& step, const price::CostModel& costs,
                                        const price::SimulateOptions& options,
                                        const Streams& streams) const;
  Result<SimulatedModule> SimulateOther(const PlannedStep& step, const price::CostModel& costs,
                                        const price::SimulateOptions& options) const;
};

// `llama3 8B`
std::string TrainedModel(const PlannedStep& step) {
  return fmt::format("{} {}", step.model.config.family->name, step.model.config.flavor);
}

Result<run::CaptureOptions> SimModelCommand::Capture() const {
  run::CaptureOptions capture{.accumulate = true};
  HEDDLE_TRY(capture.optimizer, optimizer.Choose());
  return capture;
}

Result<SimulatedModule> SimModelCommand::SimulateAsked(const PlannedStep& step,
                                                       const price::CostModel& costs,
                                                       const price::SimulateOptions& options,
                                                       const Streams& streams) const {
  HEDDLE_TRY(search::CompileJob job, compile.Job(step.plan, /*want_text=*/false));
  compile::CompileOptions& how = job.options;
  how.notes.insert(how.notes.begin(), step.layout.notes.begin(), step.layout.notes.end());
  how.manager.measure = true;
  how.manager.costs = &costs;
  search::PlanRequest request;
  request.cluster = sim.cluster;
  request.offloads = step.model.numerics.target == run::Target::kCuda;
  HEDDLE_TRY(search::FoundPlan found, search::FindPlan(step.module, job.plan, request, how));
  Module module = step.module;
  HEDDLE_TRY(compile::CompileReport report, compile::Compile(module, found.plan, how));
  compile.Print(report, streams);
  HEDDLE_TRY(SimulatedModule simulated, SimulateModule(compile.PipelineName(step.plan.decisions),
                                                       std::move(module), costs, options));
  compile.PrintNotes(report, streams);
  simulated.passes = std::move(report.passes);
  simulated.trained = TrainedModel(step);
  if (step.micro_batches() == 1) return simulated;
  // All but the last micro-batch leave the optimizer out.
  HEDDLE_TRY(run::CaptureOptions without, Capture());
  without.optimizer.reset();
  HEDDLE_TRY(PlannedStep more, PlanPass(model, found.plan, without));
  HEDDLE_RETURN_IF_ERROR(compile::Compile(more.module, found.plan, how));
  HEDDLE_TRY(price::Simulation other,
             heddle::price::Simulate(more.module, SharedProgram(more.module), costs, options));
  price::AddMicroBatches(other, step.micro_batches(), simulated.simulations[0]);
  return simulated;
}

// The pipeline as it is written: flags and statements that change it are about the one asked for.
Result<SimulatedModule> SimModelCommand::SimulateOther(
    const PlannedStep& step, const price::CostModel& costs,
    const price::SimulateOptions& options) const {
  CompileFlags other(against);
  other.pipeline = against;
  HEDDLE_TRY(search::CompileJob asked, compile.Job(step.plan, /*want_text=*/false));
  HEDDLE_TRY(search::CompileJob job, other.Job(asked.plan.UpToLowering(), /*want_text=*/false));
  job.options.manager.measure = true;
  job.options.manager.costs = &costs;
  Module module = step.module;
  HEDDLE_TRY(compile::CompileReport report, compile::Compile(module, job.plan, job.options));
  HEDDLE_TRY(SimulatedModule simulated, SimulateModule(against, std::move(module), costs, options));
  simulated.passes = std::move(report.passes);
  simulated.trained = TrainedModel(step);
  return simulated;
}

Status SimModelCommand::Simulate(const Streams& streams) const {
  HEDDLE_RETURN_IF_ERROR(outputs.Check());
  HEDDLE_TRY(price::CostModel costs, sim.Model());
  HEDDLE_TRY(price::SimulateOptions options, sim.Options());
  HEDDLE_TRY(run::CaptureOptions capture, Capture());
  HEDDLE_TRY(std::string device, model.DeviceName());
  HEDDLE_TRY(ParallelOptions spread, parallel.WithPlan(streams));
  HEDDLE_TRY(PlannedStep step, PlanStep(model, spread, capture));
  std::vector<SimulatedModule> modules;
  if (against != compile.PipelineName(step.plan.decisions)) {
    HEDDLE_TRY(SimulatedModule simulated, SimulateOther(step, costs, options));
    modules.push_back(std::move(simulated));
  }
  HEDDLE_TRY(SimulatedModule asked, SimulateAsked(step, costs, options, streams));
  modules.push_back(std::move(asked));
  return outputs.Write(modules, costs, streams,
                       SimulatedModel{std::move(device), capture.optimizer.has_value()});
}

}  // namespace

void AddSimModel(CommandSet& commands) { commands.Add<SimModelCommand>(); }

}  // namespace heddle
