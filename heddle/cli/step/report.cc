// heddle report: a report of one step, a comparison of two, measured steps, or training runs.
#include "heddle/cli/commands.h"
#include "heddle/cli/step/sim_flags.h"
#include "heddle/core/base/file.h"
#include "heddle/report/profile/profile.h"
#include "heddle/report/run/run_report.h"

namespace heddle {
namespace {

std::string LastPart(const std::string& path) { return path.substr(path.rfind('/') + 1); }

struct ReportCommand {
  static constexpr const char* kName = "report";
  static constexpr const char* kSummary =
      "Compare two schedules of a step, measured steps with their simulation, or training runs";
  static constexpr const char* kNote =
      "Compares FILE with --against, collective by collective; --html writes both to one page "
      "(docs/report.md). Without --against it prints the same as `heddle sim`. For a folder of "
      "traces that `heddle train --profile` wrote, or a trace of PyTorch's profiler, it compares "
      "the time of each class of kernels with that of --against, a trace of `heddle sim --trace`. "
      "For the metrics of a training run (.jsonl, or the folder of its checkpoints) it summarizes "
      "loss, speed and memory, and --html shows them over steps and time; --against is another "
      "run.";
  static constexpr const char* kExamples =
      "heddle report overlapped.hd --against=final.hd --html=report.html\n"
      "heddle report run/profile --html=measured.html\n"
      "heddle report run --against=other.jsonl --html=runs.html";

  std::string file;
  std::string against;
  SimFlags sim;
  SimOutputs outputs;

  void Declare(Flags& flags) {
    flags.Positional("FILE", file,
                     "graph of one rank, a trace (.json) or a folder of traces, metrics of a run "
                     "(.jsonl) or its checkpoint folder, or - for a graph from standard input");
    flags.Option("--against=FILE", against,
                 "graph, simulated trace or run to compare FILE with (default for a folder of "
                 "traces: its simulated.json)");
    sim.Declare(flags);
    outputs.Declare(flags);
  }
  Status Run(const Streams& streams) const;

 private:
  bool IsRun() const { return file.ends_with(".jsonl") || IsRunFolder(file); }
  bool IsProfile() const { return file.ends_with(".json") || IsDirectory(file); }
  Status ReportProfile(const Streams& streams) const;
  Status ReportRun(const Streams& streams) const;
  // Fails if a flag is given that is for graphs only.
  Status CheckNoGraphOutputs(std::string_view has) const;
  // Writes the page, and prints the JSON or the text, each unless it is not asked for.
  template <typename Measured>
  Status WriteMeasured(const Measured& measured, std::string (*page)(const Measured&),
                       std::string (*text)(const Measured&), const Streams& streams) const;
};

Status ReportCommand::CheckNoGraphOutputs(std::string_view has) const {
  for (auto [flag, given] :
       {std::pair{"--trace", !outputs.trace.empty()}, std::pair{"--timeline", outputs.timeline}}) {
    if (given) return Error(Diag::kUsage, "{} is for graphs, but `{}` has {}", flag, file, has);
  }
  return Done{};
}

template <typename Measured>
Status ReportCommand::WriteMeasured(const Measured& measured, std::string (*page)(const Measured&),
                                    std::string (*text)(const Measured&),
                                    const Streams& streams) const {
  if (!outputs.html.empty())
    HEDDLE_RETURN_IF_ERROR(WriteOutput(outputs.html, page(measured), streams));
  if (outputs.html == "-") return Done{};
  if (outputs.json)
    PrintJson(ToJson(measured), streams);
  else
    streams.out << text(measured);
  return Done{};
}

Status ReportCommand::ReportProfile(const Streams& streams) const {
  HEDDLE_RETURN_IF_ERROR(CheckNoGraphOutputs("measured steps"));
  HEDDLE_TRY(Profile profile, LoadProfile(file, against));
  return WriteMeasured(profile, FormatProfilePage, FormatProfile, streams);
}

Status ReportCommand::ReportRun(const Streams& streams) const {
  HEDDLE_RETURN_IF_ERROR(CheckNoGraphOutputs("the metrics of a run"));
  TrainingReport report;
  HEDDLE_TRY(report.run, LoadRunLog(file));
  if (!against.empty()) {
    HEDDLE_TRY(report.against, LoadRunLog(against));
    // Files with equal names in two folders are shown with their paths.
    if (report.run.file == report.against->file) {
      report.run.file = file;
      report.against->file = against;
    }
  }
  return WriteMeasured(report, FormatRunPage, FormatRunReport, streams);
}

Status ReportCommand::Run(const Streams& streams) const {
  HEDDLE_RETURN_IF_ERROR(outputs.Check());
  if (IsRun()) return ReportRun(streams);
  if (IsProfile()) return ReportProfile(streams);
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
