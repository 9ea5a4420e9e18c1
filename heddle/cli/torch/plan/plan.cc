// heddle plan: captures a model, partitions it over ranks, and reports its memory and work.
#include "heddle/api/plan.h"

#include <ostream>

#include <nlohmann/json.hpp>

#include "heddle/cli/graph/pass_costs.h"
#include "heddle/cli/step/compile_flags.h"
#include "heddle/cli/step/sim_flags.h"
#include "heddle/cli/torch/commands.h"
#include "heddle/cli/torch/job_flags.h"
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
  static constexpr const char* kNote =
      "Captures the model, places it on the mesh, inserts collectives, and prints one rank's "
      "memory, work and communication. Allocates no weights; the number of ranks does not change "
      "the time it takes.";
  static constexpr const char* kExamples =
      "heddle plan --model=llama3 --flavor=8B --parallelism.data_parallel_shard_degree=64\n"
      "heddle plan --model=llama3 --flavor=8B --parallelism.auto --mesh=dp=32,tp=8 "
      "--write-plan=8b.plan";

  PlanOptions options;
  CompileFlags compile;
  TimeLimitFlag time_limit;
  bool without_optimizer = false;
  compile::Stage stage = compile::Stage::kFinal;
  std::optional<int64_t> coordinate;
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
    DeclareStep(flags, options.model, &options.prices.cluster);
    DeclareParallelism(flags, options.parallel);
    flags.Section("Automatic parallelism");
    flags.Switch("--parallelism.auto", options.automatic,
                 "find the placements that make the step fastest on --cluster");
    flags.Option("--mesh=AXES", options.mesh,
                 "with --parallelism.auto: mesh axes, slowest first, as in dp=32,tp=8 (default: "
                 "from the degrees)");
    time_limit.Declare(flags, "--parallelism.auto");
    flags.Requires("--time-limit", "--parallelism.auto");
    compile.Declare(flags);
    flags.Section("Costs");
    DeclarePrices(flags, options.prices, "cluster that runs the step");
    DeclareOptimizer(flags, *options.optimizer, without_optimizer);
    flags.Section("Output");
    DeclareStage(flags, stage);
    flags.Option("--coordinate=K", coordinate,
                 "of a pipeline: print only the final graph of this coordinate", {.least = 0});
    flags.Option("-o,--output=FILE", output, "file for the graph of --stage");
    flags.Option("--write-plan=FILE", plan_output,
                 "file for the plan, which `heddle parallelize` and --plan read");
    flags.Switch("--payloads", payloads,
                 "print the offset of each parameter in its bucket instead of the summary");
    flags.Option(
        "--explain", explain,
        "with --parallelism.auto: print why this parameter has its placement, and the cost "
        "of every other one, instead of the summary");
    flags.Requires("--explain", "--parallelism.auto");
    flags.Option("--diff=A,B", diff, "compare two plan files, as in A.plan,B.plan, and exit");
    flags.Switch("--diff-costs", diff_costs,
                 "with --diff: simulate the model on --cluster with both plans, and with each "
                 "difference alone");
    flags.Requires("--diff-costs", "--diff");
    flags.Option("--html=FILE", html,
                 "write a report of the step, simulated on --cluster, to this file");
    flags.Switch("--json", json, "print the summary as JSON; sizes in bytes");
    flags.Config(job);
  }
  Result<ExitCode> Run(const Streams& streams) const;

 private:
  // The options with compile settings, the plan from standard input, and parsed text values.
  Result<PlanOptions> Options(const Streams& streams) const;
  Status CheckOutputs() const;
  Status WriteFiles(const PlanResult& planned, const Streams& streams) const;
  Result<search::StorageExplanation> Explain(const PlanOptions& complete) const;
  // Whether to print the graph, because a stage has no output file.
  bool PrintsGraph() const {
    return output == "-" || (output.empty() && options.model.given("--stage") && !json);
  }
};

Result<PlanOptions> PlanCommand::Options(const Streams& streams) const {
  PlanOptions complete = options;
  HEDDLE_TRY(complete.parallel, WithPlan(options.parallel, streams));
  HEDDLE_TRY(complete.work, time_limit.Parse());
  complete.compile = compile;
  if (without_optimizer) complete.optimizer.reset();
  if (!output.empty() || PrintsGraph()) complete.print = stage;
  complete.print_coordinate = coordinate;
  return complete;
}

Status PlanCommand::CheckOutputs() const {
  return CheckOneOutput({{"the graph", PrintsGraph()},
                         {"the plan", plan_output == "-"},
                         {"the report", html == "-"},
                         {"the summary", json},
                         {"payloads", payloads}});
}

Status PlanCommand::WriteFiles(const PlanResult& planned, const Streams& streams) const {
  if (!output.empty()) HEDDLE_RETURN_IF_ERROR(WriteOutput(output, planned.report.text, streams));
  if (!plan_output.empty())
    HEDDLE_RETURN_IF_ERROR(
        WriteOutput(plan_output, compile::FormatPlan(planned.found.plan), streams));
  if (html.empty()) return Done{};
  HEDDLE_TRY(search::SimulatedModule simulated,
             search::SimulateModule(compile.PipelineName(planned.step.plan.decisions),
                                    planned.step.module, planned.costs, {},
                                    search::PipelineFactsOf(planned.found.plan.decisions)));
  simulated.passes = planned.report.passes;
  const run::ModelConfig& config = planned.step.model.config;
  simulated.trained = fmt::format("{} {}", config.family->name, config.flavor);
  return WritePage(html, {&simulated, 1}, planned.costs, streams);
}

// Solves again with the prices with which the chosen plan was found.
Result<search::StorageExplanation> PlanCommand::Explain(const PlanOptions& complete) const {
  HEDDLE_TRY(PlannedStep step, CapturePlanned(complete));
  HEDDLE_TRY(price::PriceOptions prices, PricesOf(complete));
  HEDDLE_TRY(price::CostModel priced, prices.Load());
  HEDDLE_TRY(
      search::AutoPlanner planner,
      search::AutoPlanner::Make(step.module, step.plan, priced, search::WorkLimit(complete.work)));
  search::AutoPlanner::Request request;
  if (!compile.memory_budget.empty()) {
    HEDDLE_TRY(Bytes budget, search::ParseBudget(compile.memory_budget));
    request.memory = search::MemoryLimit{budget, true};
  }
  return search::ExplainStorage(planner, SharedProgram(step.module), step.plan, explain, request);
}

nlohmann::ordered_json ToJson(const PlanResult& planned) {
  nlohmann::ordered_json out = heddle::ToJson(planned.summary);
  for (const price::StepSummary& one : planned.coordinates)
    out["coordinates"].push_back(heddle::ToJson(one));
  if (planned.found.memory) {
    out.update(ToJson(*planned.found.memory));
    out["decisions"] = ToJson(planned.found.decisions);
  }
  if (planned.found.placements) out["auto"] = ToJson(*planned.found.placements);
  out["passes"] = CostsToJson(planned.report);
  out["notes"] = planned.notes;
  out["seconds"] = {{"capture", Seconds(planned.step.capture)},
                    {"find", Seconds(planned.finding)},
                    {"parallelize", Seconds(planned.report.parallelize)},
                    {"passes", Seconds(planned.report.cleaning)}};
  if (const std::optional<search::FoundPlacements>& found = planned.found.placements)
    out["seconds"].update({{"pricing", Seconds(found->pricing)},
                           {"solving", Seconds(found->solving)},
                           {"trying", Seconds(found->trying)}});
  out["device"] = planned.device;
  out["optimizer"] = planned.summary.has_optimizer;
  return out;
}

std::string FormatResult(const PlanResult& planned) {
  std::string out = FormatSummary(planned.summary);
  if (!planned.coordinates.empty()) out += "\n" + FormatCoordinates(planned.coordinates);
  if (planned.found.memory)
    out += "\n" + search::FormatChoices({*planned.found.memory}) + "\n" +
           FormatDecisions(planned.found.decisions);
  if (planned.found.placements) out += "\n" + search::FormatTrials(*planned.found.placements);
  out += FormatCosts(planned.report);
  for (const std::string& note : planned.notes) out += fmt::format("\nnote: {}\n", note);
  double seconds[] = {Seconds(planned.step.capture), Seconds(planned.finding),
                      Seconds(planned.report.parallelize), Seconds(planned.report.cleaning)};
  return out + fmt::format(
                   "\nplanned in {:.3f} s: capture {:.3f}, find {:.3f}, parallelize {:.3f}, "
                   "passes {:.3f}\n",
                   seconds[0] + seconds[1] + seconds[2] + seconds[3], seconds[0], seconds[1],
                   seconds[2], seconds[3]);
}

Result<ExitCode> PlanCommand::Run(const Streams& streams) const {
  HEDDLE_RETURN_IF_ERROR(price::LoadCluster(options.prices.cluster));
  HEDDLE_TRY(PlanOptions complete, Options(streams));
  if (!diff.empty()) return RunPlanDiff(diff, diff_costs, json, complete, streams);
  if (!explain.empty()) {
    HEDDLE_TRY(search::StorageExplanation explanation, Explain(complete));
    if (json)
      PrintJson(ToJson(explanation), streams);
    else
      streams.out << Format(explanation);
    return ExitCode::kDone;
  }
  HEDDLE_RETURN_IF_ERROR(CheckOutputs());
  HEDDLE_TRY(PlanResult planned, api::Plan(complete));
  if (coordinate && planned.coordinates.empty())
    return Error(Diag::kUsage, "--coordinate is {}, but the plan has no pipeline", *coordinate);
  HEDDLE_RETURN_IF_ERROR(WriteFiles(planned, streams));
  compile.Print(planned.report, streams);
  if (json) {
    PrintJson(ToJson(planned), streams);
  } else if (PrintsGraph()) {
    if (output.empty()) HEDDLE_RETURN_IF_ERROR(WriteGraph(output, planned.report.text, streams));
  } else if (payloads) {
    streams.out << compile::FormatPayloads(SharedProgram(planned.step.module));
  } else if (plan_output != "-" && html != "-") {
    streams.out << FormatResult(planned);
  }
  return ExitCode::kDone;
}

}  // namespace

void AddPlan(CommandSet& commands) { commands.Add<PlanCommand>(); }

}  // namespace heddle
