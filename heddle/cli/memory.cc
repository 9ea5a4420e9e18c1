// heddle memory: what a step costs with less memory.
#include <ostream>

#include <nlohmann/json.hpp>

#include "heddle/cli/commands.h"
#include "heddle/compile/memory_search.h"
#include "heddle/passes/passes.h"
#include "heddle/report/table.h"

namespace heddle {
namespace {

struct MemoryCommand {
  static constexpr const char* kName = "memory";
  static constexpr const char* kSummary =
      "Find what to compute again so that a step needs less memory";
  static constexpr const char* kNote =
      "Reads a lowered graph: local, before its pipeline. Each line is a policy of the pass "
      "`checkpoint`, tried for good: the pipeline runs behind it, and the graph that comes out is "
      "simulated.";

  std::string file;
  std::string pipeline = "fsdp";
  std::string cluster = "h100-8x";
  std::string budget;
  bool sweep = false;
  bool json = false;

  void Declare(Flags& flags) {
    flags.Positional("FILE", file, "the graph, or - for standard input");
    flags.Switch("--sweep", sweep, "the curve of step time against peak");
    flags.Option("--budget", budget, "the fastest step that needs at most this, as in 6GiB");
    flags.Option("--pipeline", pipeline, "what runs behind the decisions (default: fsdp)");
    flags.Option("--cluster", cluster,
                 "what the step runs on, by name or as a path to a JSON file");
    flags.Switch("--json", json, "print a list of objects; sizes are in bytes");
  }

  ExitCode Run(const Streams& streams) const {
    Result<std::vector<MemoryChoice>> choices = Find(streams);
    if (!choices.ok()) return Report(choices.diagnostics(), streams);
    if (json) {
      auto list = nlohmann::ordered_json::array();
      for (const MemoryChoice& choice : *choices) list.push_back(ToJson(choice));
      PrintJson(list, streams);
      return ExitCode::kDone;
    }
    streams.out << FormatChoices(*choices);
    return ExitCode::kDone;
  }

 private:
  Result<std::vector<MemoryChoice>> Find(const Streams& streams) const {
    if (sweep == !budget.empty())
      return Error(Diag::kUsage, "one of --sweep and --budget says what to find");
    Bytes most;
    if (!budget.empty()) {
      HEDDLE_TRY(most, ParseBudget(budget));
    }
    HEDDLE_TRY(Module module, LoadModule(file, streams));
    if (module.view != View::kLocal || module.graphs.size() != 1)
      return Error(Diag::kNeedsLocal,
                   "`{}` is not one local graph; `heddle parallelize --stage=lowered` makes the "
                   "one that a rank runs",
                   file);
    HEDDLE_TRY(Pipeline after, ParsePipeline(pipeline, Passes()));
    HEDDLE_TRY(Cluster loaded, LoadCluster(cluster));
    HEDDLE_TRY(CostModel model, CostModel::Make(std::move(loaded), {}));
    MemorySearch search(module, after, model);
    if (sweep) return search.Sweep();
    HEDDLE_TRY(MemoryChoice choice, search.Within(most));
    return std::vector{choice};
  }
};

}  // namespace

void AddMemory(CommandSet& commands) { commands.Add<MemoryCommand>(); }

}  // namespace heddle
