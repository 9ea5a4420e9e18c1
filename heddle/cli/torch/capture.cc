// heddle capture: one training step of a model, as a graph.
#include "heddle/run/capture/capture.h"

#include <ostream>

#include "heddle/cli/torch/commands.h"
#include "heddle/cli/torch/model_flags.h"
#include "heddle/core/base/clock.h"
#include "heddle/core/ir/program.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/price/cost/cluster/cluster.h"

namespace heddle {
namespace {

struct CaptureCommand {
  static constexpr const char* kName = "capture";
  static constexpr const char* kSummary = "Capture one training step of a model as a graph";
  static constexpr const char* kNote =
      "Allocates no weights, so any model can be captured on any machine.";
  static constexpr const char* kExamples =
      "heddle capture --model=llama3 --flavor=8B --training.seq_len=8192 -o step.hd";

  ModelFlags model;
  OptimizerFlags optimizer;
  std::string cluster = "h100-8x";
  std::string output;
  bool time = false;

  void Declare(Flags& flags) {
    model.Declare(flags, &cluster);
    flags.Option("--cluster", cluster,
                 "cluster that the step is for: a name, or a JSON file; its device type is the "
                 "default of --runtime.device");
    flags.Section("Output");
    optimizer.Declare(flags);
    flags.Switch("--time", time, "print time and peak memory of the capture to standard error");
    flags.Option("-o,--output=FILE", output, "file for the graph (default: standard output)");
  }
  ExitCode Run(const Streams& streams) const;
};

ExitCode CaptureCommand::Run(const Streams& streams) const {
  Status needless = model.CheckNoWeights();
  if (!needless.ok()) return Report(needless.diagnostics(), streams);
  if (Result<price::Cluster> known = price::LoadCluster(cluster); !known.ok())
    return Report(known.diagnostics(), streams);
  Result<std::optional<run::OptimizerOptions>> chosen = optimizer.Choose();
  if (!chosen.ok()) return Report(chosen.diagnostics(), streams);
  Result<run::Model> made = model.Make();
  if (!made.ok()) return Report(made.diagnostics(), streams);
  Clock clock;
  Result<Module> module = run::CaptureModel(*made, *chosen);
  if (!module.ok()) return Report(module.diagnostics(), streams);
  Nanos captured = clock.Elapsed();
  std::string text = Print(*module);
  if (time) {
    streams.err << fmt::format("capture {:.3f} s, print {:.3f} s, {} nodes, peak memory {}\n",
                               Seconds(captured), Seconds(clock.Elapsed() - captured),
                               SharedProgram(*module).node_count(), Format(PeakMemory()));
  }
  Status written = WriteGraph(output, text, streams);
  return written.ok() ? ExitCode::kDone : Report(written.diagnostics(), streams);
}

}  // namespace

void AddCapture(CommandSet& commands) { commands.Add<CaptureCommand>(); }

}  // namespace heddle
