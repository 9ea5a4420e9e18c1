// heddle capture: one training step of a model, as a graph.
#include "heddle/capture/capture.h"

#include <ostream>

#include "heddle/base/clock.h"
#include "heddle/cli/torch/commands.h"
#include "heddle/cli/torch/model_flags.h"
#include "heddle/ir/text/print.h"

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
  bool with_optimizer = false;
  std::string output;
  bool time = false;

  void Declare(Flags& flags) {
    model.Declare(flags);
    flags.Section("Output");
    flags.Switch("--with-optimizer", with_optimizer,
                 "include gradient clipping (global norm 1.0) and AdamW");
    flags.Switch("--time", time, "print time and peak memory of the capture to standard error");
    flags.Option("-o,--output=FILE", output, "file for the graph (default: standard output)");
  }
  ExitCode Run(const Streams& streams) const;
};

ExitCode CaptureCommand::Run(const Streams& streams) const {
  Status needless = model.CheckNoWeights();
  if (!needless.ok()) return Report(needless.diagnostics(), streams);
  Result<Model> made = model.Make();
  if (!made.ok()) return Report(made.diagnostics(), streams);
  Clock clock;
  Result<Module> module =
      CaptureModel(*made, with_optimizer ? std::optional(OptimizerOptions()) : std::nullopt);
  if (!module.ok()) return Report(module.diagnostics(), streams);
  Nanos captured = clock.Elapsed();
  std::string text = Print(*module);
  if (time) {
    streams.err << fmt::format("capture {:.3f} s, print {:.3f} s, {} nodes, peak memory {}\n",
                               Seconds(captured), Seconds(clock.Elapsed() - captured),
                               module->graphs[0].node_count(), Format(PeakMemory()));
  }
  Status written = WriteGraph(output, text, streams);
  return written.ok() ? ExitCode::kDone : Report(written.diagnostics(), streams);
}

}  // namespace

void AddCapture(CommandSet& commands) { commands.Add<CaptureCommand>(); }

}  // namespace heddle
