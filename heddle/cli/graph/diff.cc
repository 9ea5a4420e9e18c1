// heddle diff: shows how the nodes of two graphs differ.
#include "heddle/core/ir/text/diff.h"

#include <ostream>

#include <nlohmann/json.hpp>

#include "heddle/cli/commands.h"

namespace heddle {
namespace {

struct DiffCommand {
  static constexpr const char* kName = "diff";
  static constexpr const char* kSummary =
      "Show which nodes were added (+), removed (-), changed (< >) or moved (^) from A to B";
  static constexpr const char* kNote = "Exit code 0: the graphs are equal; 2: they differ.";
  static constexpr const char* kExamples = "heddle diff before.hd after.hd";

  std::string a;
  std::string b;
  bool json = false;

  void Declare(Flags& flags);
  Result<ExitCode> Run(const Streams& streams) const;
};

void DiffCommand::Declare(Flags& flags) {
  flags.Positional("A", a, "first graph, or - for standard input");
  flags.Positional("B", b, "second graph, or - for standard input");
  flags.Switch("--json", json, "print JSON: [{kind, graph, before, after, from, to, follows}]");
}

Result<ExitCode> DiffCommand::Run(const Streams& streams) const {
  HEDDLE_RETURN_IF_ERROR(CheckOneInput("A", a, "B", b));
  HEDDLE_TRY(Module before, LoadModule(a, streams));
  HEDDLE_TRY(Module after, LoadModule(b, streams));
  std::vector<Change> changes = Diff(before, after);
  if (json) {
    auto list = nlohmann::ordered_json::array();
    for (const Change& c : changes) {
      nlohmann::ordered_json entry{{"kind", Name(c.kind)}, {"graph", c.graph}};
      if (!c.before.empty()) entry["before"] = c.before;
      if (!c.after.empty()) entry["after"] = c.after;
      if (c.kind == ChangeKind::kMoved)
        entry.update({{"from", c.from}, {"to", c.to}, {"follows", c.follows}});
      list.push_back(std::move(entry));
    }
    PrintJson(list, streams);
  } else {
    streams.out << Format(changes);
  }
  return changes.empty() ? ExitCode::kDone : ExitCode::kDiffers;
}

}  // namespace

void AddDiff(CommandSet& commands) { commands.Add<DiffCommand>(); }

}  // namespace heddle
