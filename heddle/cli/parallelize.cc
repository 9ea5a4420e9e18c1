// heddle parallelize: from a captured graph and a plan to the graph of one rank.
#include <ostream>

#include <nlohmann/json.hpp>

#include "heddle/budget/choice.h"
#include "heddle/cli/commands.h"
#include "heddle/cli/compile_flags.h"
#include "heddle/plan/plan.h"
#include "heddle/report/summary.h"

namespace heddle {
namespace {

struct ParallelizeCommand {
  static constexpr const char* kName = "parallelize";
  static constexpr const char* kSummary = "Place a captured graph on a mesh as a plan says";
  static constexpr const char* kNote =
      "`heddle plan` writes plans for the usual ways with --write-plan; docs/plans.md describes "
      "the text.";

  std::string file;
  std::string plan;
  std::string output;
  std::string plan_output;
  std::string cluster = "h100-8x";
  std::string memory_budget;
  TimeLimitFlag time_limit;
  CompileFlags compile;
  bool json = false;

  void Declare(Flags& flags) {
    flags.Positional("FILE", file, "the captured graph, or - for standard input");
    flags.Option("--plan", plan, "the file with the plan", true);
    flags.Option("-o,--output", output, "where the graph goes (default: standard output)");
    flags.Option("--write-plan", plan_output,
                 "where the plan goes, with what `auto` in it has found");
    flags.Option("--cluster", cluster,
                 "what `auto` is to make fast, by name or as a path to a JSON file");
    flags.Option("--memory.budget", memory_budget,
                 "what `auto` may use of a rank for parameters, gradients, optimizer state and "
                 "saved activations, as in 60GiB");
    time_limit.Declare(flags, "`auto`");
    compile.Declare(flags);
    flags.Switch("--json", json, "print the summary as JSON; the graph goes only to -o");
  }

  ExitCode Run(const Streams& streams) const {
    Result<std::string> text = LoadPlan(streams);
    if (!text.ok()) return Report(text.diagnostics(), streams);
    Result<Module> module = LoadModule(file, streams);
    if (!module.ok()) return Report(module.diagnostics(), streams);
    Status global = CheckGlobal(*module);
    if (!global.ok()) return Report(global.diagnostics(), streams);
    bool want_graph = !json || !output.empty();
    Result<CompileOptions> options = Options(*text, want_graph);
    if (!options.ok()) return Report(options.diagnostics(), streams);
    Result<CompileReport> report = Compile(*module, *options);
    if (!report.ok()) return Report(report.diagnostics(), streams);
    if (want_graph) {
      Status written = WriteOutput(output, report->text, streams);
      if (!written.ok()) return Report(written.diagnostics(), streams);
    }
    if (!plan_output.empty()) {
      Status written = WriteOutput(
          plan_output, report->found ? FormatPlan(report->found->plan) : *text, streams);
      if (!written.ok()) return Report(written.diagnostics(), streams);
    }
    compile.Print(*report, streams);
    if (json) {
      // One graph is the common case, and gets one object.
      auto list = nlohmann::ordered_json::array();
      for (size_t g = 0; g < module->graphs.size(); ++g)
        list.push_back(ToJson(Summarize(*module, module->graphs[g], report->whole_work[g])));
      if (report->found) list[0]["auto"] = ToJson(*report->found);
      PrintJson(list.size() == 1 ? list[0] : list, streams);
    }
    return ExitCode::kDone;
  }

  Result<CompileOptions> Options(std::string text, bool want_graph) const {
    HEDDLE_TRY(CompileOptions options, compile.Options(std::move(text), want_graph));
    options.cluster = cluster;
    HEDDLE_TRY(options.automatic.allowance, time_limit.Parse());
    if (!memory_budget.empty()) {
      HEDDLE_TRY(Bytes bytes, ParseBudget(memory_budget));
      options.automatic.memory = {bytes, true};
    }
    return options;
  }

  Status CheckGlobal(const Module& module) const {
    if (module.view == View::kGlobal) return Done{};
    return Error(Diag::kPassView,
                 "{} is a local graph, which one rank runs; parallelize takes a global graph, of "
                 "the whole step: `heddle capture` and `heddle import --global` write one",
                 InputName(file));
  }

  // A plan that can be read: its mistakes are shown in its own file.
  Result<std::string> LoadPlan(const Streams& streams) const {
    HEDDLE_RETURN_IF_ERROR(CheckOneInput("FILE", file, "--plan", plan));
    HEDDLE_RETURN_IF_ERROR(
        CheckOneOutput({{"the graph", output == "-" || (output.empty() && !json)},
                        {"the plan", plan_output == "-"},
                        {"the summary", json}}));
    HEDDLE_TRY(std::string text, ReadInput(plan, streams));
    HEDDLE_RETURN_IF_ERROR(ParsePlan(text, InputName(plan)));
    return text;
  }
};

}  // namespace

void AddParallelize(CommandSet& commands) { commands.Add<ParallelizeCommand>(); }

}  // namespace heddle
