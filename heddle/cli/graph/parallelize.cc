// heddle parallelize: applies a plan to a captured graph, and writes the graph of one rank.
#include <ostream>

#include <nlohmann/json.hpp>

#include "heddle/cli/commands.h"
#include "heddle/cli/step/compile_flags.h"
#include "heddle/cli/step/sim_flags.h"
#include "heddle/compile/plan/plan.h"
#include "heddle/report/summary.h"
#include "heddle/search/compile_graph.h"
#include "heddle/search/memory/choice.h"

namespace heddle {
namespace {

struct ParallelizeCommand {
  static constexpr const char* kName = "parallelize";
  static constexpr const char* kSummary =
      "Partition a captured graph over a mesh according to a plan";
  static constexpr const char* kNote =
      "`heddle plan --write-plan` writes plans for the usual kinds of parallelism; docs/plans.md "
      "describes the format.";
  static constexpr const char* kExamples =
      "heddle parallelize step.hd --plan=fsdp.plan --compile.pipeline=fsdp -o local.hd\n"
      "heddle parallelize step.hd --plan=auto.plan --memory.budget=60GiB -o local.hd";

  std::string file;
  std::string plan;
  std::string output;
  std::string plan_output;
  price::PriceOptions costs;
  std::string memory_budget;
  TimeLimitFlag time_limit;
  CompileFlags compile{{.usual_pipeline = "none"}};
  compile::Stage stage = compile::Stage::kFinal;
  std::shared_ptr<const GivenFlags> given;
  bool json = false;

  void Declare(Flags& flags) {
    given = flags.given();
    flags.Positional("FILE", file, "captured graph, or - for standard input");
    flags.Required("--plan=FILE", plan, "plan to apply, or - for standard input");
    flags.Section("Output");
    flags.Option("-o,--output=FILE", output, "file for the graph (default: standard output)");
    flags.Option("--write-plan=FILE", plan_output,
                 "file for the plan, with the placements that `auto` found");
    DeclareStage(flags, stage);
    flags.Switch("--json", json, "print the summary as JSON; the graph goes only to -o");
    flags.Section("Plans with `auto`");
    DeclarePrices(flags, costs, "cluster to find the fastest placements and schedules for");
    flags.Option("--memory.budget", memory_budget,
                 "limit of a rank's parameters, gradients, optimizer state and saved activations, "
                 "as in 60GiB");
    time_limit.Declare(flags, "`auto`");
    compile.Declare(flags, /*with_budget=*/false);
  }

  Status Run(const Streams& streams) const {
    HEDDLE_TRY(std::string text, LoadPlan(streams));
    HEDDLE_TRY(Module module, LoadModule(file, streams));
    HEDDLE_RETURN_IF_ERROR(CheckGlobal(module));
    bool want_graph = !json || !output.empty();
    HEDDLE_TRY(search::CompiledGraph done, Parallelize(module, text, want_graph));
    const compile::CompileReport& report = done.report;
    const std::optional<search::FoundPlacements>& placements = done.found.placements;
    if (want_graph) HEDDLE_RETURN_IF_ERROR(WriteGraph(output, report.text, streams));
    if (!plan_output.empty())
      HEDDLE_RETURN_IF_ERROR(WriteOutput(
          plan_output, placements ? compile::FormatPlan(done.found.plan) : text, streams));
    compile.Print(report, streams);
    compile.PrintNotes(report, streams);
    if (!json) return Done{};
    // Prints one object in the common case of one graph.
    auto list = nlohmann::ordered_json::array();
    for (size_t g = 0; g < module.graphs.size(); ++g)
      list.push_back(
          heddle::ToJson(price::Summarize(module, module.graphs[g], report.whole_work[g])));
    if (placements) list[0]["auto"] = ToJson(*placements);
    PrintJson(list.size() == 1 ? list[0] : list, streams);
    return Done{};
  }

 private:
  Result<search::CompiledGraph> Parallelize(Module& module, const std::string& text,
                                            bool want_graph) const {
    search::GraphJob job;
    job.settings = compile;
    job.prices = costs;
    HEDDLE_TRY(job.plan, compile::ParsePlan(text, InputName(plan)));
    for (const char* flag : {"--memory.budget", "--time-limit"}) {
      if (given->Has(flag) && !job.plan.automatic)
        return Error(Diag::kUsage, "{} has no effect: the plan does not say `auto`", flag);
    }
    job.chose_cluster = given->Has("--cluster");
    if (want_graph) job.print = stage;
    HEDDLE_TRY(job.request.automatic.work, time_limit.Parse());
    if (!memory_budget.empty()) {
      HEDDLE_TRY(Bytes bytes, search::ParseBudget(memory_budget));
      job.request.automatic.memory = {bytes, true};
    }
    return search::CompileGraph(module, job);
  }

  Status CheckGlobal(const Module& module) const {
    if (module.view == View::kGlobal) return Done{};
    return Error(Diag::kPassView,
                 "{} is a local graph, of one rank; parallelize needs a global graph, of the whole "
                 "step: use `heddle capture` or `heddle import --global`",
                 InputName(file));
  }

  // Checks that the plan parses, so that errors refer to its own file.
  Result<std::string> LoadPlan(const Streams& streams) const {
    HEDDLE_RETURN_IF_ERROR(CheckOneInput("FILE", file, "--plan", plan));
    HEDDLE_RETURN_IF_ERROR(
        CheckOneOutput({{"the graph", output == "-" || (output.empty() && !json)},
                        {"the plan", plan_output == "-"},
                        {"the summary", json}}));
    HEDDLE_TRY(std::string text, ReadInput(plan, streams));
    HEDDLE_RETURN_IF_ERROR(compile::ParsePlan(text, InputName(plan)));
    return text;
  }
};

}  // namespace

void AddParallelize(CommandSet& commands) { commands.Add<ParallelizeCommand>(); }

}  // namespace heddle
