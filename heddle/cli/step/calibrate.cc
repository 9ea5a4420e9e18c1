// heddle calibrate: fits a cluster file to traces and to tables of nccl-tests.
#include "heddle/price/calibrate/calibrate.h"

#include <algorithm>
#include <ostream>

#include <nlohmann/json.hpp>

#include "heddle/cli/commands.h"
#include "heddle/cli/step/sim_flags.h"
#include "heddle/core/base/clock.h"
#include "heddle/core/base/file.h"
#include "heddle/core/base/gzip.h"
#include "heddle/core/base/table.h"
#include "heddle/core/base/text.h"

namespace heddle {
namespace {

constexpr size_t kMostUnpacked = size_t{1} << 30;

struct CalibrateCommand {
  static constexpr const char* kName = "calibrate";
  static constexpr const char* kSummary =
      "Fit a cluster file to traces of a step and to tables of nccl-tests";
  static constexpr const char* kNote =
      "Reads traces in Chrome's format (`heddle train --profile`, PyTorch's profiler) and the "
      "output of nccl-tests. Times of traces are microseconds; a step is the mean of the steps "
      "that a trace repeats. docs/calibrate.md describes the fit.";
  static constexpr const char* kExamples =
      "heddle calibrate trace.json --graph=step.hd --cluster=h200-8x -o mine.json\n"
      "heddle calibrate all_gather.txt --cluster=h100-8x -o mine.json";

  std::vector<std::string> files;
  std::string graph;
  std::string cluster = "h100-8x";
  std::optional<price::Execution> execution;
  std::string date;
  std::string output;
  bool json = false;

  void Declare(Flags& flags) {
    flags.Positional("FILE", files, "traces and tables of nccl-tests");
    flags.Section("Calibration");
    flags.Option("--graph=FILE", graph, "graph of one rank whose steps were traced");
    flags.Option("--cluster", cluster, "cluster to change: a name, or a JSON file");
    DeclareExecution(flags, execution);
    flags.Option("--date", date, "date of the measurement, as in 2026-11-19, for the sources");
    flags.Section("Output");
    flags.Option("-o,--output=FILE", output,
                 "file for the changed cluster, or - to print it instead of the errors");
    flags.Switch("--json", json, "print the errors as JSON; times in milliseconds");
  }
  Status Run(const Streams& streams) const;

 private:
  // `type`: the device of the cluster, whose work traces must have.
  Result<price::CalibrationInput> Read(const std::optional<Module>& module,
                                       price::DeviceType type) const;
  Result<std::string> ClusterText() const;
  void Print(const price::Calibration& calibration, const price::CalibrationInput& input,
             const Streams& streams) const;
};

double ErrorOf(Nanos predicted, Nanos measured) {
  return static_cast<double>(predicted.value) / static_cast<double>(measured.value) - 1;
}

Result<std::string> CalibrateCommand::ClusterText() const {
  if (price::IsClusterPath(cluster)) return ReadFile(cluster);
  HEDDLE_RETURN_IF_ERROR(price::LoadCluster(cluster));
  auto is_named = [&](const price::NamedCluster& named) { return named.name == cluster; };
  return std::string(std::ranges::find_if(price::BuiltInClusters(), is_named)->text);
}

Result<price::CalibrationInput> CalibrateCommand::Read(const std::optional<Module>& module,
                                                       price::DeviceType type) const {
  auto wanted =
      type == price::DeviceType::kCpu ? price::TraceWork::kAny : price::TraceWork::kDevice;
  price::CalibrationInput input;
  std::vector<price::TracedStep> traced;
  for (const std::string& file : files) {
    HEDDLE_TRY(std::string text, ReadFile(file));
    if (IsGzip(text)) {
      HEDDLE_TRY(text, Gunzip(text, kMostUnpacked));
    }
    if (price::IsNcclTable(text)) {
      HEDDLE_TRY(price::NcclTable table, price::ReadNcclTable(text, file));
      input.tables.push_back(std::move(table));
    } else {
      HEDDLE_TRY(price::TracedStep step, price::ReadTracedStep(std::move(text), file, wanted));
      traced.push_back(step);
    }
  }
  if (!traced.empty() && !module)
    return Error(Diag::kUsage, "a trace needs --graph, the graph of one rank whose steps it has");
  if (!traced.empty()) {
    price::TracedStep& mean = input.step.emplace();
    auto count = static_cast<int64_t>(traced.size());
    mean.steps = 0;
    for (const price::TracedStep& one : traced) {
      for (size_t i = 0; i < price::kKernelClassCount; ++i) mean.busy[i] += one.busy[i];
      mean.kernels += one.kernels / count;
      mean.steps += one.steps;
      mean.length += Nanos{one.length.value / count};
    }
    for (Nanos& busy : mean.busy) busy.value /= count;
  }
  if (module) input.module = &*module;
  input.options.fused = true;
  input.options.execution = execution.value_or(price::Execution::kHeddle);
  std::string of = input.step ? fmt::format(", {}", Counted(input.step->steps, "step")) : "";
  input.source = fmt::format("heddle calibrate: {}{}{}", Counted(files.size(), "file"), of,
                             date.empty() ? "" : ", " + date);
  return input;
}

void CalibrateCommand::Print(const price::Calibration& calibration,
                             const price::CalibrationInput& input, const Streams& streams) const {
  auto list = nlohmann::ordered_json::array();
  TextTable table({"", "measured>", "before>", "after>"});
  for (const price::ClassError& error : calibration.errors) {
    auto cell = [&](Nanos predicted) {
      std::string text = Format(predicted);
      if (error.measured.value > 0)
        text += fmt::format(" ({:+.1f} %)", 100 * ErrorOf(predicted, error.measured));
      return text;
    };
    table.AddRow({error.name, Format(error.measured), cell(error.before), cell(error.after)});
    list.push_back({{"name", error.name},
                    {"measured_ms", Millis(error.measured)},
                    {"before_ms", Millis(error.before)},
                    {"after_ms", Millis(error.after)}});
  }
  if (json) {
    nlohmann::ordered_json out = {{"cluster", cluster}, {"errors", list}};
    if (input.step) {
      out["steps"] = input.step->steps;
      out["kernels"] = input.step->kernels;
      out["step_ms"] = Millis(input.step->length);
    }
    out["notes"] = calibration.notes;
    PrintJson(out, streams);
    return;
  }
  if (input.step) {
    streams.out << fmt::format("{} of {} each, {}\n\n", Counted(input.step->steps, "step"),
                               Counted(input.step->kernels, "kernel"), Format(input.step->length));
  }
  streams.out << table.Format();
  for (const std::string& note : calibration.notes) streams.out << "\nnote: " << note << "\n";
}

Status CalibrateCommand::Run(const Streams& streams) const {
  std::optional<Module> module;
  if (!graph.empty()) {
    HEDDLE_TRY(module, LoadModule(graph, streams));
    if (module->view != View::kLocal)
      return Error(
          Diag::kNeedsLocal,
          "a global graph has no kernels; use `heddle parallelize` to make the graph of one "
          "rank");
  }
  HEDDLE_RETURN_IF_ERROR(CheckOneOutput({{"the cluster", output == "-"}, {"--json", json}}));
  HEDDLE_TRY(std::string text, ClusterText());
  HEDDLE_TRY(price::Cluster parsed, price::ParseCluster(text, cluster));
  HEDDLE_TRY(price::CalibrationInput input, Read(module, parsed.device.type));
  auto changed = nlohmann::ordered_json::parse(text);
  HEDDLE_TRY(price::Calibration calibration, price::Calibrate(input, cluster, changed));
  if (output != "-") Print(calibration, input, streams);
  return output.empty() ? Status(Done{}) : WriteOutput(output, changed.dump(2) + "\n", streams);
}

}  // namespace

void AddCalibrate(CommandSet& commands) { commands.Add<CalibrateCommand>(); }

}  // namespace heddle
