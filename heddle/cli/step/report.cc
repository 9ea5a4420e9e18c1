// heddle report: a report of one step, or a comparison of two.
#include "heddle/cli/commands.h"
#include "heddle/cli/step/sim_flags.h"

namespace heddle {
namespace {

std::string LastPart(const std::string& path) { return path.substr(path.rfind('/') + 1); }

struct ReportCommand {
  static constexpr const char* kName = "report";
  static constexpr const char* kSummary =
      "Compare two schedules of a step on a cluster and explain the difference";
  static constexpr const char* kNote =
      "Compares FILE with --against, collective by collective; --html writes both to one page "
      "(docs/report.md). Without --against it prints the same as `heddle sim`.";
  static constexpr const char* kExamples =
      "heddle report overlapped.hd --against=final.hd --html=report.html";

  std::string file;
  std::string against;
  SimFlags sim;
  SimOutputs outputs;

  void Declare(Flags& flags) {
    flags.Positional("FILE", file, "graph of one rank, or - for standard input");
    flags.Option("--against=FILE", against, "graph to compare FILE with");
    sim.Declare(flags);
    outputs.Declare(flags);
  }
  Status Run(const Streams& streams) const;
};

Status ReportCommand::Run(const Streams& streams) const {
  HEDDLE_RETURN_IF_ERROR(outputs.Check());
  HEDDLE_RETURN_IF_ERROR(CheckOneInput("FILE", file, "--against", against));
  HEDDLE_TRY(price::CostModel model, sim.Load());
  HEDDLE_TRY(price::SimulateOptions options, sim.Options());
  // Files with equal names in two folders are shown with their paths.
  bool short_names = LastPart(file) != LastPart(against);
  std::vector<search::SimulatedModule> modules;
  for (const std::string& path : {against, file}) {
    if (path.empty()) continue;
    HEDDLE_TRY(Module module, LoadModule(path, streams));
    std::string name = InputName(path);
    HEDDLE_TRY(search::SimulatedModule simulated,
               search::SimulateModule(short_names ? LastPart(name) : name, std::move(module), model,
                                      options));
    modules.push_back(std::move(simulated));
  }
  return outputs.Write(modules, model, streams);
}

}  // namespace

void AddReport(CommandSet& commands) { commands.Add<ReportCommand>(); }

}  // namespace heddle
