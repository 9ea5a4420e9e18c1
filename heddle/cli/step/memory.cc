// heddle memory: the cost of a step with less memory.
#include <ostream>

#include <nlohmann/json.hpp>

#include "heddle/cli/commands.h"
#include "heddle/cli/step/sim_flags.h"
#include "heddle/compile/manager/manager.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/report/html/curve_page.h"
#include "heddle/search/memory/memory_decisions.h"
#include "heddle/search/memory/memory_search.h"

namespace heddle {
namespace {

struct MemoryCommand {
  static constexpr const char* kName = "memory";
  static constexpr const char* kSummary =
      "Choose activations to keep, recompute or offload so that a step fits into memory";
  static constexpr const char* kNote =
      "Reads a lowered graph of one rank, before its pipeline. Each row was compiled with the full "
      "pipeline and simulated.";
  static constexpr const char* kExamples =
      "heddle memory lowered.hd --sweep --html=curve.html\n"
      "heddle memory lowered.hd --budget=60GiB -o marked.hd";

  std::string file;
  std::string pipeline = "fsdp";
  price::PriceOptions costs;
  std::string budget;
  std::string output;
  std::string html;
  bool sweep = false;
  bool json = false;

  void Declare(Flags& flags) {
    flags.Positional("FILE", file, "lowered graph, or - for standard input");
    flags.Section("Search");
    flags.Switch("--sweep", sweep, "print the curve of step time against peak memory");
    flags.Option("--budget", budget, "find the fastest step within this much memory, as in 6GiB");
    flags.Option("--pipeline", pipeline, "pipeline that runs after the decisions");
    DeclarePrices(flags, costs, "cluster to simulate");
    flags.Section("Output");
    flags.Option("-o,--output=FILE", output,
                 "with --budget: file for the graph with the decisions as marks, which "
                 "`rematerialize, offload` applies");
    flags.Option("--html=FILE", html, "with --sweep: write the curve for a browser to this file");
    flags.Switch("--json", json, "print a list of JSON objects; sizes in bytes");
    flags.Requires("--output", "--budget");
    flags.Requires("--html", "--sweep");
  }

  Status Run(const Streams& streams) const {
    HEDDLE_RETURN_IF_ERROR(CheckFlags());
    Bytes most;
    if (!budget.empty()) {
      HEDDLE_TRY(most, search::ParseBudget(budget));
    }
    HEDDLE_TRY(Module module, LoadModule(file, streams));
    if (module.view != View::kLocal || module.graphs.size() != 1)
      return Error(Diag::kNeedsLocal,
                   "`{}` is not a single local graph; use `heddle parallelize --stage=lowered` to "
                   "make the graph of one rank",
                   file);
    HEDDLE_TRY(compile::Pipeline after, compile::ParsePipeline(pipeline, compile::Passes()));
    HEDDLE_TRY(compile::Pipeline clean,
               compile::ParsePipeline("clean", compile::Passes(), compile::Author::kProgram));
    HEDDLE_RETURN_IF_ERROR(compile::RunPipeline(module, clean));
    HEDDLE_TRY(price::CostModel model, costs.Load());
    HEDDLE_TRY(auto search, search::MemorySearch::Make(module, after, model));
    if (sweep) {
      HEDDLE_TRY(std::vector<search::MemoryChoice> curve, search->Sweep());
      return ShowCurve(curve, streams);
    }
    HEDDLE_TRY(search::MemoryChoice choice, search->FindWithin(most));
    return ShowChoice(choice, *search, streams);
  }

 private:
  Status CheckFlags() const {
    if (sweep == !budget.empty())
      return Error(Diag::kUsage, "give exactly one of --sweep and --budget");
    return CheckOneOutput(
        {{"the graph", output == "-"}, {"the page", html == "-"}, {"the list", json}});
  }

  Status ShowCurve(const std::vector<search::MemoryChoice>& choices, const Streams& streams) const {
    if (!html.empty()) {
      MemoryCurve curve{.title = fmt::format("{}, {}, {}", file, pipeline, costs.cluster),
                        .columns = {"recompute", "nodes", "kept", "on the host"},
                        .points = {}};
      for (const search::MemoryChoice& choice : choices)
        curve.points.push_back({choice.policy,
                                choice.peak,
                                choice.step,
                                {Format(choice.recompute), std::to_string(choice.recomputed),
                                 Format(choice.kept), Format(choice.offloaded)}});
      HEDDLE_RETURN_IF_ERROR(WriteOutput(html, FormatCurvePage(curve), streams));
      if (html == "-") return Done{};
    }
    if (json) {
      auto list = nlohmann::ordered_json::array();
      for (const search::MemoryChoice& choice : choices) list.push_back(search::ToJson(choice));
      PrintJson(list, streams);
    } else {
      streams.out << search::FormatChoices(choices);
    }
    return Done{};
  }

  Status ShowChoice(const search::MemoryChoice& choice, search::MemorySearch& search,
                    const Streams& streams) const {
    search::Trials& trials = search.trials();
    if (!output.empty()) {
      HEDDLE_RETURN_IF_ERROR(WriteOutput(output, Print(trials.Marked(choice.marks)), streams));
      if (output == "-") return Done{};
    }
    HEDDLE_TRY(std::vector<search::DecisionLine> decisions,
               search::ListDecisions(trials, choice.marks));
    if (json) {
      nlohmann::ordered_json out = search::ToJson(choice);
      out["decisions"] = search::ToJson(decisions);
      PrintJson(nlohmann::ordered_json::array({out}), streams);
    } else {
      streams.out << search::FormatChoices({choice}) << "\n" << search::FormatDecisions(decisions);
    }
    return Done{};
  }
};

}  // namespace

void AddMemory(CommandSet& commands) { commands.Add<MemoryCommand>(); }

}  // namespace heddle
