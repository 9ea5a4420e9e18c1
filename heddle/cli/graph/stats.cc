// heddle stats: counts and sizes of a graph.
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
  Status Run(const Streams& streams) const;
};

void StatsCommand::Declare(Flags& flags) {
  flags.Positional("FILE", file, "graph to count, or - for standard input");
  flags.Switch("--payloads", payloads, "print the offset of each parameter in its bucket instead");
  flags.Switch("--json", json,
               "print JSON: an object, or a list if there are several graphs; sizes in bytes");
}

Status StatsCommand::Run(const Streams& streams) const {
  if (payloads && json) return Error(Diag::kUsage, "--payloads prints a table; remove --json");
  HEDDLE_TRY(Module module, LoadModule(file, streams));
  auto list = nlohmann::ordered_json::array();
  std::string text;
  for (const Graph& graph : module.graphs) {
    if (payloads) {
      text += compile::FormatPayloads(graph);
      continue;
    }
    GraphStats stats = ComputeStats(module, graph);
    if (json) list.push_back(ToJson(stats));
    text += (text.empty() ? "" : "\n") + FormatStats(stats);
  }
  // Prints one object in the common case of one graph.
  if (json)
    PrintJson(list.size() == 1 ? list[0] : list, streams);
  else
    streams.out << text;
  return Done{};
}

}  // namespace

void AddStats(CommandSet& commands) { commands.Add<StatsCommand>(); }

}  // namespace heddle
