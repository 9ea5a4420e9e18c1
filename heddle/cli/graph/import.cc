// heddle import: converts a graph of another program.
#include "heddle/import/import.h"

#include <ostream>

#include <nlohmann/json.hpp>

#include "heddle/cli/commands.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ir/text/print.h"

namespace heddle {
namespace {

struct ImportCommand {
  static constexpr const char* kName = "import";
  static constexpr const char* kSummary =
      "Convert a graph that PyTorch printed, dumped or exported";
  static constexpr const char* kNote =
      "Reads FX graphs printed by print_readable, repro files of Inductor, archives and JSON of "
      "torch.export, and JSON of other exporters; see docs/import.md.";
  static constexpr const char* kExamples =
      "heddle import fx_graph_readable.py -o step.hd\n"
      "heddle import export.pt2 --mesh=dp=8,tp=8 --group=0=dp --group=1=tp -o step.hd";

  std::string file;
  std::string output;
  std::string mesh;
  std::vector<std::string> groups;
  int64_t hint = 512;
  bool global = false;
  std::vector<std::string> params;
  bool json = false;

  void Declare(Flags& flags);
  Status Run(const Streams& streams) const;

 private:
  Result<ImportOptions> MakeOptions() const;
  Result<Imported> ReadAndImport(const ImportOptions& options, const Streams& streams) const;
};

void ImportCommand::Declare(Flags& flags) {
  flags.Positional("FILE", file, "file to read, or - for standard input");
  flags.Option("-o,--output=FILE", output, "file for the graph (default: standard output)");
  flags.Option("--mesh=AXES", mesh,
               "mesh of the process groups, slowest axis first, as in dp=8,tp=8 (default: one axis "
               "per group)");
  flags.Option("--group=NAME=AXES", groups,
               "axes of a process group, as in 0=dp or 3=dp,tp; repeatable");
  flags.Requires("--group", "--mesh");
  flags.Option("--hint", hint, "value assumed for a size that the program reads from a tensor",
               {0, INT32_MAX});
  flags.Switch("--global", global,
               "make a global graph, the whole step before it is partitioned over ranks, for "
               "`heddle parallelize`; the file has no collectives");
  flags.Option("--params", params,
               "inputs that are parameters, if the file does not state it: names with * for any "
               "text, numbers from 0 or ranges, as in params_* or 0-11");
  flags.Switch("--json", json, "print counts and remarks as JSON; needs -o");
}

Result<ImportOptions> ImportCommand::MakeOptions() const {
  ImportOptions options;
  options.mesh = mesh;
  options.hint = hint;
  options.global = global;
  options.params = params;
  if (global && (!mesh.empty() || !groups.empty()))
    return Error(Diag::kUsage, "--{} is given with --global; a plan gives a global graph its mesh",
                 mesh.empty() ? "group" : "mesh");
  for (const std::string& group : groups) {
    size_t equals = group.find('=');
    if (equals == std::string::npos)
      return Error(Diag::kUsage, "--group is `{}`, expected a name and axes, as in 0=dp", group);
    options.groups.emplace_back(group.substr(0, equals), group.substr(equals + 1));
  }
  return options;
}

nlohmann::ordered_json ToJson(const Imported& imported) {
  const ImportCounts& counts = imported.counts;
  return {{"placeholders", counts.placeholders},
          {"statements", counts.statements},
          {"items", counts.items},
          {"outputs", counts.outputs},
          {"opaque", counts.opaque},
          {"remarks", imported.remarks}};
}

Result<Imported> ImportCommand::ReadAndImport(const ImportOptions& options,
                                              const Streams& streams) const {
  if (file != "-") return ImportFile(file, options);
  HEDDLE_TRY(std::string bytes, ReadInput(file, streams));
  return Import(bytes, InputName(file), options);
}

Status ImportCommand::Run(const Streams& streams) const {
  bool to_stdout = output.empty() || output == "-";
  HEDDLE_RETURN_IF_ERROR(CheckOneOutput({{"the graph", to_stdout}, {"--json", json}}));
  HEDDLE_TRY(ImportOptions options, MakeOptions());
  HEDDLE_TRY(Imported imported, ReadAndImport(options, streams));
  HEDDLE_RETURN_IF_ERROR(WriteGraph(output, Print(imported.module), streams));
  if (json) {
    PrintJson(ToJson(imported), streams);
    return Done{};
  }
  for (const std::string& remark : imported.remarks) streams.err << "remark: " << remark << "\n";
  return Done{};
}

}  // namespace

void AddImport(CommandSet& commands) { commands.Add<ImportCommand>(); }

}  // namespace heddle
