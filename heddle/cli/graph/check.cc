// heddle check: parses and verifies a graph, and reports each error with its position.
#include <ostream>

#include <nlohmann/json.hpp>

#include "heddle/cli/commands.h"
#include "heddle/core/analysis/transfers.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ops/ops.h"

namespace heddle {
namespace {

struct CheckCommand {
  static constexpr const char* kName = "check";
  static constexpr const char* kSummary =
      "Parse and verify a graph; report every error with its position";
  static constexpr const char* kNote = "";
  static constexpr const char* kExamples =
      "heddle check step.hd\n"
      "heddle check step.hd --json";

  std::string file;
  bool json = false;

  void Declare(Flags& flags);
  Result<ExitCode> Run(const Streams& streams) const;
};

nlohmann::ordered_json ToJson(const Diagnostics& diagnostics) {
  auto list = nlohmann::ordered_json::array();
  for (const Diagnostic& d : diagnostics) {
    list.push_back({{"file", d.file},
                    {"line", d.line},
                    {"column", d.column},
                    {"kind", Name(d.kind)},
                    {"message", d.message}});
  }
  return list;
}

// A graph with more opaque ops uses them on purpose.
constexpr size_t kMostNotes = 32;

// Opaque ops are not errors, but a misspelled op becomes one.
std::string OpaqueNotes(const Module& module) {
  std::map<std::string, int64_t> counts;
  for (const Graph& graph : module.graphs) {
    for (NodeId id : graph.nodes()) {
      if (graph[id].op == kOpaqueOp) ++counts[graph.attrs(id).opaque_op];
    }
  }
  std::string notes;
  size_t shown = 0;
  for (const auto& [name, count] : counts) {
    if (shown++ == kMostNotes) {
      notes += fmt::format("note: {} more are not in the op table\n",
                           WithCommas(static_cast<int64_t>(counts.size() - kMostNotes)));
      break;
    }
    notes += fmt::format("note: `{}` is not in the op table and is carried as it is, {}{}\n", name,
                         Counted(count, "node"), Ops().Hint(name));
  }
  return notes;
}

void CheckCommand::Declare(Flags& flags) {
  flags.Positional("FILE", file, "graph to check, or - for standard input");
  flags.Switch("--json", json, "print JSON: {ok, errors: [{file, line, column, kind, message}]}");
}

Result<ExitCode> CheckCommand::Run(const Streams& streams) const {
  Result<Module> module = LoadModule(file, streams);
  if (module.ok()) {
    Status transfers = CheckTransfers(*module);
    if (!transfers.ok()) module = std::move(transfers).failure();
  }
  if (json) {
    PrintJson({{"ok", module.ok()}, {"errors", ToJson(module.diagnostics())}}, streams);
    return module.ok() ? ExitCode::kDone : ExitCode::kUserMistake;
  }
  if (!module.ok()) {
    Report(module.diagnostics(), streams);
    auto count = static_cast<int64_t>(module.diagnostics().size());
    streams.err << fmt::format("{}: {}\n", InputName(file), Counted(count, "error"));
    return ExitCode::kUserMistake;
  }
  streams.err << OpaqueNotes(*module);
  int64_t nodes = 0;
  for (const Graph& graph : module->graphs) nodes += static_cast<int64_t>(graph.node_count());
  streams.out << fmt::format("{}: ok, {}, {}\n", InputName(file),
                             Counted(static_cast<int64_t>(module->graphs.size()), "graph"),
                             Counted(nodes, "node"));
  return ExitCode::kDone;
}

}  // namespace

void AddCheck(CommandSet& commands) { commands.Add<CheckCommand>(); }

}  // namespace heddle
