// heddle stats: what is in a graph, in numbers.
#include "heddle/report/stats.h"

#include <ostream>

#include <nlohmann/json.hpp>

#include "heddle/cli/commands.h"
#include "heddle/compile/payloads.h"

namespace heddle {
namespace {

struct StatsCommand {
  static constexpr const char* kName = "stats";
  static constexpr const char* kSummary =
      "Count the nodes, parameters, collectives and bytes of a graph";
  static constexpr const char* kNote = "";
  static constexpr const char* kExamples =
      "heddle stats step.hd\n"
      "heddle stats final.hd --payloads";

  std::string file;
  bool payloads = false;
  bool json = false;

  void Declare(Flags& flags);
  ExitCode Run(const Streams& streams) const;
};

void StatsCommand::Declare(Flags& flags) {
  flags.Positional("FILE", file, "graph to count, or - for standard input");
  flags.Switch("--payloads", payloads, "print the offset of each parameter in its bucket instead");
  flags.Switch("--json", json,
               "print JSON: an object, or a list if there are several graphs; sizes in bytes");
}

ExitCode StatsCommand::Run(const Streams& streams) const {
  Result<Module> module = LoadModule(file, streams);
  if (!module.ok()) return Report(module.diagnostics(), streams);
  if (payloads) {
    if (json)
      return Report({MakeDiagnostic(Diag::kUsage, "--payloads prints a table; remove --json")},
                    streams);
    for (const Graph& graph : module->graphs) streams.out << compile::FormatPayloads(graph);
    return ExitCode::kDone;
  }
  std::vector<GraphStats> all;
  for (const Graph& graph : module->graphs) all.push_back(ComputeStats(*module, graph));
  if (json) {
    // One graph is the common case, and gets one object.
    auto list = nlohmann::ordered_json::array();
    for (const GraphStats& stats : all) list.push_back(ToJson(stats));
    PrintJson(all.size() == 1 ? list[0] : list, streams);
    return ExitCode::kDone;
  }
  for (size_t i = 0; i < all.size(); ++i)
    streams.out << (i == 0 ? "" : "\n") << FormatStats(all[i]);
  return ExitCode::kDone;
}

}  // namespace

void AddStats(CommandSet& commands) { commands.Add<StatsCommand>(); }

}  // namespace heddle
