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
  bool with_optimizer = false;
  std::string against = "none";
  SimFlags sim;
  SimOutputs outputs;
  std::string job;

  void Declare(Flags& flags) {
    model.Declare(flags);
    parallel.Declare(flags);
    compile.Declare(flags, /*with_stage=*/false);
    flags.Switch("--with-optimizer", with_optimizer,
                 "include gradient clipping (global norm 1.0) and AdamW");
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
};

Result<SimulatedModule> SimulateWith(const CompileFlags& compile, const PlannedStep& step,
                                     const CostModel& costs, const SimulateOptions& options,
                                     const Streams& streams, bool prints_notes) {
  HEDDLE_TRY(CompileOptions how, compile.Options(FormatPlan(step.plan), /*want_text=*/false));
  how.notes = step.layout.notes;
  how.manager.measure = true;
  Module module = step.module;
  HEDDLE_TRY(CompileReport report, Compile(module, how));
  compile.Print(report, streams);
  HEDDLE_TRY(SimulatedModule simulated,
             SimulateModule(compile.PipelineName(), std::move(module), costs, options));
  simulated.passes = std::move(report.passes);
  if (prints_notes) compile.PrintNotes(report, streams);
  simulated.trained =
      fmt::format("{} {}", step.model.config.family->name, step.model.config.flavor);
  return simulated;
}

Status SimModelCommand::Simulate(const Streams& streams) const {
  HEDDLE_RETURN_IF_ERROR(outputs.Check());
  HEDDLE_TRY(CostModel costs, sim.Model());
  HEDDLE_TRY(SimulateOptions options, sim.Options());
  HEDDLE_TRY(
      PlannedStep step,
      PlanStep(model, parallel, streams,
               {.optimizer = with_optimizer ? std::optional(OptimizerOptions()) : std::nullopt}));
  std::vector<SimulatedModule> modules;
  if (against != compile.PipelineName()) {
    // As it is written: flags that change the pipeline are about the one that is asked for.
    CompileFlags other(against);
    other.pipeline = against;
    other.reduce_first = compile.reduce_first;
    HEDDLE_TRY(SimulatedModule simulated,
               SimulateWith(other, step, costs, options, streams, /*prints_notes=*/false));
    modules.push_back(std::move(simulated));
  }
  HEDDLE_TRY(SimulatedModule asked,
             SimulateWith(compile, step, costs, options, streams, /*prints_notes=*/true));
  modules.push_back(std::move(asked));
  return outputs.Write(modules, costs, streams);
}

}  // namespace

void AddSimModel(CommandSet& commands) { commands.Add<SimModelCommand>(); }

}  // namespace heddle
