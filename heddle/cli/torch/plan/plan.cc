// heddle plan: captures a model, spreads it over ranks, and says what that costs.
#include <algorithm>
#include <ostream>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "heddle/api/planned_step.h"
#include "heddle/cli/compile_flags.h"
#include "heddle/cli/pass_costs.h"
#include "heddle/cli/sim_flags.h"
#include "heddle/cli/torch/commands.h"
#include "heddle/cli/torch/model_flags.h"
#include "heddle/cli/torch/plan/auto_flags.h"
#include "heddle/cli/torch/plan/plan_diff.h"
#include "heddle/compile/payloads.h"
#include "heddle/core/base/clock.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ir/program.h"
#include "heddle/report/summary.h"
#include "heddle/search/explain_storage.h"
#include "heddle/search/memory/choice.h"

namespace heddle {
namespace {

struct PlanCommand {
  static constexpr const char* kName = "plan";
  static constexpr const char* kSummary =
      "Partition a training step over ranks and report its memory, work and communication";
  static constexpr const char* kNote =
      "Captures the model, places it on the mesh, inserts collectives, and prints one rank's "
      "memory, work and communication. Allocates no weights; the number of ranks does not change "
      "the time it takes.";
  static constexpr const char* kExamples =
      "heddle plan --model=llama3 --flavor=8B --parallelism.data_parallel_shard_degree=64\n"
      "heddle plan --model=llama3 --flavor=8B --parallelism.auto --mesh=dp=32,tp=8 "
      "--write-plan=8b.plan";

  ModelFlags model;
  ParallelFlags parallel;
  AutoFlags automatic;
  CompileFlags compile{"fsdp"};
  CostFlags costs;
  OptimizerFlags optimizer;
  std::string output;
  std::string plan_output;
  bool payloads = false;
  std::string explain;
  std::string diff;
  bool diff_costs = false;
  std::string html;
  bool json = false;
  std::string job;

  void Declare(Flags& flags) {
    model.Declare(flags, &costs.cluster);
    parallel.Declare(flags);
    automatic.Declare(flags);
    compile.Declare(flags);
    compile.DeclareBudget(flags);
    flags.Section("Costs");
    costs.Declare(flags, "cluster that runs the step");
    optimizer.Declare(flags);
    flags.Section("Output");
    flags.Option("-o,--output=FILE", output, "file for the graph of --stage");
    flags.Option("--write-plan=FILE", plan_output,
                 "file for the plan, which `heddle parallelize` and --plan read");
    flags.Switch("--payloads", payloads,
                 "print the offset of each parameter in its bucket instead of the summary");
    flags.Option(
        "--explain", explain,
        "with --parallelism.auto: print why this parameter has its placement, and the cost "
        "of every other one, instead of the summary");
    flags.Option("--diff=A,B", diff, "compare two plan files, as in A.plan,B.plan, and exit");
    flags.Switch("--diff-costs", diff_costs,
                 "with --diff: simulate the model on --cluster with both plans, and with each "
                 "difference alone");
    flags.Option("--html=FILE", html,
                 "write a report of the step, simulated on --cluster, to this file");
    flags.Switch("--json", json, "print the summary as JSON; sizes in bytes");
    flags.Config(job);
  }
  ExitCode Run(const Streams& streams) const;

 private:
  struct Planned {
    PlannedStep step;
    search::FoundPlan found;
    compile::CompileReport report;
    // The time that FindPlan took.
    Nanos finding;
    // `cuda`: whose kernels the step uses.
    std::string device;
  };
  Result<PlannedStep> MakeStep(const Streams& streams) const;
  Result<Planned> Make(const Streams& streams) const;
  Result<search::PlanRequest> RequestFor(const PlannedStep& step, const std::string& cluster,
                                         const price::CostModel& model) const;
  Status WriteFiles(const Planned& planned, const Streams& streams) const;
  Result<search::StorageExplanation> Explain(const Streams& streams) const;
  ExitCode RunExplain(const Streams& streams) const;
  // Who asks for a stage and names no file wants to see the graph.
  bool PrintsGraph() const {
    return output == "-" || (output.empty() && !compile.stage.empty() && !json);
  }
};

// As degrees or a mesh say, or a file.
Result<PlannedStep> PlanCommand::MakeStep(const Streams& streams) const {
  run::CaptureOptions capture{.accumulate = true};
  HEDDLE_TRY(capture.optimizer, optimizer.Choose());
  HEDDLE_RETURN_IF_ERROR(automatic.Check(parallel));
  if (!automatic.automatic) {
    HEDDLE_TRY(ParallelOptions options, parallel.WithPlan(streams));
    return PlanStep(model, options, capture);
  }
  HEDDLE_TRY(run::ModelConfig config, model.Config());
  HEDDLE_TRY(ParallelOptions::Layout layout, automatic.MakeLayout(parallel, config));
  return PlanAutoStep(model, parallel, std::move(layout), capture);
}

Result<PlanCommand::Planned> PlanCommand::Make(const Streams& streams) const {
  if (diff_costs) return Error(Diag::kUsage, "--diff-costs requires --diff");
  HEDDLE_RETURN_IF_ERROR(CheckOneOutput({{"the graph", PrintsGraph()},
                                         {"the plan", plan_output == "-"},
                                         {"the report", html == "-"},
                                         {"the summary", json},
                                         {"payloads", payloads}}));
  HEDDLE_RETURN_IF_ERROR(model.CheckNoWeights());
  HEDDLE_TRY(PlannedStep step, MakeStep(streams));
  HEDDLE_TRY(search::CompileJob job, compile.Job(step.plan, !output.empty() || PrintsGraph()));
  CostFlags priced = costs;
  HEDDLE_TRY(priced.cluster, compile.ClusterOf(job.plan, costs.cluster));
  HEDDLE_TRY(price::CostModel model, priced.Model());
  job.options.notes.insert(job.options.notes.begin(), step.layout.notes.begin(),
                           step.layout.notes.end());
  job.options.manager.measure = true;
  job.options.manager.costs = &model;
  HEDDLE_TRY(search::PlanRequest request, RequestFor(step, priced.cluster, model));
  Clock clock;
  HEDDLE_TRY(search::FoundPlan found,
             search::FindPlan(step.module, job.plan, request, job.options));
  Nanos finding = clock.Elapsed();
  HEDDLE_TRY(compile::CompileReport report, compile::Compile(step.module, found.plan, job.options));
  HEDDLE_TRY(std::string device, this->model.DeviceName());
  return Planned{std::move(step), std::move(found), std::move(report), finding, std::move(device)};
}

Result<search::PlanRequest> PlanCommand::RequestFor(const PlannedStep& step,
                                                    const std::string& cluster,
                                                    const price::CostModel& model) const {
  search::PlanRequest request;
  request.cluster = cluster;
  request.offloads = step.model.numerics.target == run::Target::kCuda;
  if (!automatic.automatic) return request;
  HEDDLE_TRY(request.automatic.allowance, automatic.time_limit.Parse());
  request.tries_plans = true;
  request.rivals = step.rivals;
  request.limit =
      search::DeviceLimit{model.cluster().device.memory, compile.checkpoint_mode.empty()};
  return request;
}

// Notes that are printed with or without --remarks. `memory` is that of a device.
std::vector<std::string> NotesOf(const search::FoundPlan& found,
                                 const compile::CompileReport& report, Bytes peak, Bytes memory) {
  std::vector<std::string> notes = report.notes;
  if (found.placements && found.placements->budget)
    notes.push_back(
        fmt::format("the fastest plan without recomputation needs {}, and a device has {}; this "
                    "plan is the fastest that fits",
                    Format(found.placements->too_large), Format(*found.placements->budget)));
  if (peak > memory)
    notes.push_back(fmt::format("the step needs {}, more than the {} of a device", Format(peak),
                                Format(memory)));
  for (const compile::PassRecord& record : report.passes) {
    for (const compile::Remark& remark : record.remarks) {
      if (remark.kind == compile::RemarkKind::kGradientsDivided) notes.push_back(remark.text);
    }
  }
  return notes;
}

Status PlanCommand::WriteFiles(const Planned& planned, const Streams& streams) const {
  if (!output.empty()) HEDDLE_RETURN_IF_ERROR(WriteOutput(output, planned.report.text, streams));
  if (!plan_output.empty())
    HEDDLE_RETURN_IF_ERROR(
        WriteOutput(plan_output, compile::FormatPlan(planned.found.plan), streams));
  if (html.empty()) return Done{};
  HEDDLE_TRY(price::CostModel model, costs.Model());
  HEDDLE_TRY(SimulatedModule simulated,
             SimulateModule(compile.PipelineName(planned.step.plan.decisions), planned.step.module,
                            model, {}));
  simulated.passes = planned.report.passes;
  const run::ModelConfig& config = planned.step.model.config;
  simulated.trained = fmt::format("{} {}", config.family->name, config.flavor);
  return WritePage(html, {&simulated, 1}, model, streams);
}

// Solved anew, with the prices that the chosen plan was found by.
Result<search::StorageExplanation> PlanCommand::Explain(const Streams& streams) const {
  if (!automatic.automatic)
    return Error(Diag::kUsage,
                 "--explain is about what --parallelism.auto finds, which is not given");
  HEDDLE_TRY(PlannedStep step, MakeStep(streams));
  HEDDLE_TRY(price::CostModel priced, costs.Model());
  HEDDLE_TRY(search::Allowance allowance, automatic.time_limit.Parse());
  HEDDLE_TRY(search::AutoPlanner planner,
             search::AutoPlanner::Make(step.module, step.plan, priced, search::Limit(allowance)));
  search::AutoPlanner::Request request;
  if (!compile.memory_budget.empty()) {
    HEDDLE_TRY(Bytes budget, search::ParseBudget(compile.memory_budget));
    request.memory = search::MemoryLimit{budget, true};
  }
  return search::ExplainStorage(planner, SharedProgram(step.module), step.plan, explain, request);
}

ExitCode PlanCommand::RunExplain(const Streams& streams) const {
  Result<search::StorageExplanation> explanation = Explain(streams);
  if (!explanation.ok()) return Report(explanation.diagnostics(), streams);
  if (json)
    PrintJson(ToJson(*explanation), streams);
  else
    streams.out << Format(*explanation);
  return ExitCode::kDone;
}

ExitCode PlanCommand::Run(const Streams& streams) const {
  Result<price::Cluster> known = price::LoadCluster(costs.cluster);
  if (!known.ok()) return Report(known.diagnostics(), streams);
  if (!diff.empty())
    return RunPlanDiff({diff, diff_costs, json, costs, optimizer}, model, compile, streams);
  if (!explain.empty()) return RunExplain(streams);
  Result<Planned> planned = Make(streams);
  if (!planned.ok()) return Report(planned.diagnostics(), streams);
  Status written = WriteFiles(*planned, streams);
  if (!written.ok()) return Report(written.diagnostics(), streams);
  compile.Print(planned->report, streams);
  price::StepSummary summary = price::Summarize(
      planned->step.module, SharedProgram(planned->step.module), planned->report.whole_work[0]);
  double seconds[] = {Seconds(planned->step.capture), Seconds(planned->finding),
                      Seconds(planned->report.parallelize), Seconds(planned->report.cleaning)};
  std::vector<std::string> notes =
      NotesOf(planned->found, planned->report, summary.peak_bytes, known->device.memory);
  if (json) {
    nlohmann::ordered_json out = ToJson(summary);
    if (planned->found.memory) {
      out.update(ToJson(*planned->found.memory));
      out["decisions"] = ToJson(planned->found.decisions);
    }
    if (planned->found.placements) out["auto"] = ToJson(*planned->found.placements);
    out["passes"] = CostsToJson(planned->report);
    out["notes"] = notes;
    out["seconds"] = {{"capture", seconds[0]},
                      {"find", seconds[1]},
                      {"parallelize", seconds[2]},
                      {"passes", seconds[3]}};
    if (const std::optional<search::FoundPlacements>& found = planned->found.placements)
      out["seconds"].update({{"pricing", Seconds(found->pricing)},
                             {"solving", Seconds(found->solving)},
                             {"trying", Seconds(found->trying)}});
    out["device"] = planned->device;
    out["optimizer"] = summary.has_optimizer;
    PrintJson(out, streams);
    return ExitCode::kDone;
  }
  if (PrintsGraph()) {
    Status shown = output.empty() ? WriteGraph(output, planned->report.text, streams) : Done{};
    return shown.ok() ? ExitCode::kDone : Report(shown.diagnostics(), streams);
  }
  if (plan_output == "-" || html == "-") return ExitCode::kDone;
  if (payloads) {
    streams.out << compile::FormatPayloads(SharedProgram(planned->step.module));
    return ExitCode::kDone;
  }
  for (std::string& note : notes) note = fmt::format("\nnote: {}\n", note);
  std::string memory;
  if (planned->found.memory)
    memory = "\n" + search::FormatChoices({*planned->found.memory}) + "\n" +
             FormatDecisions(planned->found.decisions);
  if (planned->found.placements) memory += "\n" + search::FormatTrials(*planned->found.placements);
  streams.out << FormatSummary(summary) << memory << FormatCosts(planned->report)
              << fmt::format("{}", fmt::join(notes, ""))
              << fmt::format(
                     "\nplanned in {:.3f} s: capture {:.3f}, find {:.3f}, parallelize {:.3f}, "
                     "passes {:.3f}\n",
                     seconds[0] + seconds[1] + seconds[2] + seconds[3], seconds[0], seconds[1],
                     seconds[2], seconds[3]);
  return ExitCode::kDone;
}

}  // namespace

void AddPlan(CommandSet& commands) { commands.Add<PlanCommand>(); }

}  // namespace heddle
