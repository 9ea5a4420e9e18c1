// heddle sim --model: captures a model, plans it, and simulates its step, beside the same step with another pipeline.
#include "heddle/cli/compile_flags.h"
#include "heddle/cli/sim_flags.h"
#include "heddle/cli/torch/commands.h"
#include "heddle/cli/torch/plan/planned_step.h"

namespace heddle {
namespace {

struct SimModelCommand {
  static constexpr const char* kName = "sim";
  static constexpr const char* kWithFlag = "--model";
  static constexpr const char* kSummary =
      "Capture and plan a model and simulate its step on a cluster: time, exposed collectives, "
      "memory, and what the pipeline gains";
  static constexpr const char* kNote =
      "No weight is allocated, and no device is needed. docs/cost.md says what things cost, "
      "docs/report.md what --html writes. With FILE instead of --model it simulates a graph.";

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
    optimizer.Declare(flags);
    flags.Option("--against", against,
                 "the pipeline that it is compared with; the same one compares nothing");
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
};

Result<SimulatedModule> SimulateWith(const CompileFlags& compile, const PlannedStep& step,
                                     const CostModel& costs, const SimulateOptions& options,
                                     const Streams& streams) {
  HEDDLE_TRY(CompileOptions how, compile.Options(FormatPlan(step.plan), /*want_text=*/false));
  how.notes = step.layout.notes;
  how.manager.measure = true;
  Module module = step.module;
  HEDDLE_TRY(CompileReport report, Compile(module, how));
  compile.Print(report, streams);
  HEDDLE_TRY(SimulatedModule simulated,
             SimulateModule(compile.PipelineName(), std::move(module), costs, options));
  simulated.passes = std::move(report.passes);
  return simulated;
}

Status SimModelCommand::Simulate(const Streams& streams) const {
  HEDDLE_RETURN_IF_ERROR(outputs.Check());
  HEDDLE_TRY(CostModel costs, sim.Model());
  HEDDLE_TRY(SimulateOptions options, sim.Options());
  CaptureOptions capture;
  HEDDLE_TRY(capture.optimizer, optimizer.Choose());
  HEDDLE_TRY(std::string device, model.DeviceName());
  HEDDLE_TRY(PlannedStep step, PlanStep(model, parallel, streams, capture));
  std::vector<SimulatedModule> modules;
  if (against != compile.PipelineName()) {
    // As it is written: flags that change the pipeline are about the one that is asked for.
    CompileFlags other(against);
    other.pipeline = against;
    other.reduce_first = compile.reduce_first;
    HEDDLE_TRY(SimulatedModule simulated, SimulateWith(other, step, costs, options, streams));
    modules.push_back(std::move(simulated));
  }
  HEDDLE_TRY(SimulatedModule asked, SimulateWith(compile, step, costs, options, streams));
  modules.push_back(std::move(asked));
  return outputs.Write(modules, costs, streams,
                       SimulatedModel{std::move(device), capture.optimizer.has_value()});
}

}  // namespace

void AddSimModel(CommandSet& commands) { commands.Add<SimModelCommand>(); }

}  // namespace heddle
