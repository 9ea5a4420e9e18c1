// heddle report: a step, or two beside each other, for people to look at.
#include "heddle/cli/commands.h"
#include "heddle/cli/sim_flags.h"

namespace heddle {
namespace {

std::string LastPart(const std::string& path) { return path.substr(path.rfind('/') + 1); }

struct ReportCommand {
  static constexpr const char* kName = "report";
  static constexpr const char* kSummary =
      "Compare two schedules of a step on a cluster: which is faster, and why";
  static constexpr const char* kNote =
      "FILE is compared with --against, collective by collective; --html writes both as one page, "
      "which docs/report.md describes. Without --against it says what `heddle sim` says.";
  static constexpr const char* kExamples =
      "heddle report overlapped.hd --against=final.hd --html=report.html";

  std::string file;
  std::string against;
  SimFlags sim;
  SimOutputs outputs;

  void Declare(Flags& flags) {
    flags.Positional("FILE", file, "the graph that a rank runs, or - for standard input");
    flags.Option("--against", against, "the graph that it is compared with");
    sim.Declare(flags);
    outputs.Declare(flags);
  }
  ExitCode Run(const Streams& streams) const {
    Status status = Compare(streams);
    return status.ok() ? ExitCode::kDone : heddle::Report(status.diagnostics(), streams);
  }

 private:
  Status Compare(const Streams& streams) const;
};

Status ReportCommand::Compare(const Streams& streams) const {
  HEDDLE_RETURN_IF_ERROR(outputs.Check());
  HEDDLE_RETURN_IF_ERROR(CheckOneInput("FILE", file, "--against", against));
  HEDDLE_TRY(CostModel model, sim.Model());
  HEDDLE_TRY(SimulateOptions options, sim.Options());
  // Files of one name in two folders are told apart by their paths.
  bool short_names = LastPart(file) != LastPart(against);
  std::vector<SimulatedModule> modules;
  for (const std::string& path : {against, file}) {
    if (path.empty()) continue;
    HEDDLE_TRY(Module module, LoadModule(path, streams));
    std::string name = InputName(path);
    HEDDLE_TRY(SimulatedModule simulated, SimulateModule(short_names ? LastPart(name) : name,
                                                         std::move(module), model, options));
    modules.push_back(std::move(simulated));
  }
  return outputs.Write(modules, model, streams);
}

}  // namespace

void AddReport(CommandSet& commands) { commands.Add<ReportCommand>(); }

}  // namespace heddle
