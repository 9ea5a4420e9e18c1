// heddle opt: runs a pipeline of passes over a graph.
#include <ostream>

#include <nlohmann/json.hpp>

#include "heddle/cli/commands.h"
#include "heddle/cli/step/sim_flags.h"
#include "heddle/compile/manager/manager.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/core/base/table.h"
#include "heddle/core/ir/text/print.h"

namespace heddle {
namespace {

struct OptCommand {
  static constexpr const char* kName = "opt";
  static constexpr const char* kSummary =
      "Run a pipeline of passes over a graph and print the result";
  static constexpr const char* kNote =
      "A pipeline is a list of passes and named pipelines, as in 'clean, repeat{dce, cse}'. "
      "`heddle doc passes` describes them and their options.";
  static constexpr const char* kExamples =
      "heddle opt step.hd --pipeline='clean, repeat{dce, cse}' -o clean.hd\n"
      "heddle opt step.hd --pipeline=fsdp --remarks --time -o fsdp.hd";

  std::string file;
  std::string pipeline;
  std::string output;
  bool stats = false;
  bool remarks = false;
  bool time = false;
  bool json = false;
  price::PriceOptions costs;
  compile::ManagerOptions manager;

  void Declare(Flags& flags);
  Status Run(const Streams& streams) const;
};

std::string FormatStats(const compile::RunReport& report) {
  std::string out = "--- stats\n";
  for (const compile::PassRecord& record : report.passes) {
    out += record.pass + ":";
    for (const auto& [name, count] : record.stats) out += fmt::format(" {}={}", name, count);
    out += "\n";
  }
  return out;
}

std::string FormatRemarks(const compile::RunReport& report) {
  std::string out = "--- remarks\n";
  for (const compile::PassRecord& record : report.passes) {
    for (const compile::Remark& remark : record.remarks)
      out += fmt::format("{}: {}\n", record.pass, Format(remark));
  }
  return out;
}

std::string FormatTimes(const compile::RunReport& report) {
  TextTable table({"#>", "pass", "changed", "time>"});
  for (const compile::PassRecord& record : report.passes) {
    table.AddRow({std::to_string(record.number), record.pass,
                  record.changed == Changed::kYes ? "yes" : "no", Format(record.time)});
  }
  return "--- time\n" + table.Format() +
         fmt::format("all, with checks: {}\n", Format(report.total));
}

nlohmann::ordered_json ToJson(const compile::RunReport& report) {
  auto passes = nlohmann::ordered_json::array();
  for (const compile::PassRecord& record : report.passes) {
    auto stats = nlohmann::ordered_json::object();
    for (const auto& [name, count] : record.stats) stats[name] = count;
    auto remarks = nlohmann::ordered_json::array();
    for (const compile::Remark& r : record.remarks)
      remarks.push_back(
          {{"graph", r.graph}, {"value", r.value}, {"text", r.text}, {"kind", Name(r.kind)}});
    passes.push_back({{"number", record.number},
                      {"pass", record.pass},
                      {"changed", record.changed == Changed::kYes},
                      {"stats", stats},
                      {"remarks", remarks},
                      {"nanoseconds", record.time.value}});
  }
  return {{"passes", passes}, {"nanoseconds", report.total.value}};
}

void OptCommand::Declare(Flags& flags) {
  flags.Positional("FILE", file, "graph to transform, or - for standard input");
  flags.Option("--pipeline", pipeline,
               "passes to run (default: none, which prints the graph in canonical form)");
  flags.Option("-o,--output=FILE", output, "file for the graph (default: standard output)");
  flags.Section("Passes that price nodes");
  DeclarePrices(flags, costs, "cluster that runs the step");
  flags.Section("Reports");
  flags.Switch("--stats", stats, "print the counters of each pass to standard error");
  flags.Switch("--remarks", remarks,
               "print transformations that passes declined, and why, to standard error");
  flags.Switch("--time", time, "print the time of each pass to standard error");
  flags.Switch("--json", json,
               "print the report of all passes as JSON, times in nanoseconds; the graph goes only "
               "to -o");
  flags.Section("Debugging");
  flags.Option("--dump-dir=FOLDER", manager.dump_dir,
               "write the graph after each pass to this folder, as step.0042.dce.changed.hd");
  flags.Option("--stop-after", manager.stop_after, "run only the first N passes (default: all)",
               {.least = 0});
  flags.Option("--reproducer-dir=FOLDER", manager.reproducer_dir,
               "folder for the reproducer of a failing pass");
}

Status OptCommand::Run(const Streams& streams) const {
  HEDDLE_RETURN_IF_ERROR(CheckOneOutput({{"the graph", output == "-"}, {"the report", json}}));
  HEDDLE_TRY(compile::Pipeline parsed, compile::ParsePipeline(pipeline, compile::Passes()));
  HEDDLE_TRY(Module module, LoadModule(file, streams));
  HEDDLE_TRY(price::CostModel model, costs.Load());
  compile::ManagerOptions options = manager;
  options.costs = &model;
  HEDDLE_TRY(compile::RunReport report, compile::RunPipeline(module, parsed, options));
  // With --json, standard output is the report; the graph goes only to -o.
  if (!json || !output.empty()) HEDDLE_RETURN_IF_ERROR(WriteGraph(output, Print(module), streams));
  if (json) PrintJson(ToJson(report), streams);
  if (remarks) streams.err << FormatRemarks(report);
  if (stats) streams.err << FormatStats(report);
  if (time) streams.err << FormatTimes(report);
  return Done{};
}

}  // namespace

void AddOpt(CommandSet& commands) { commands.Add<OptCommand>(); }

}  // namespace heddle
