// heddle capture: captures one training step of a model as a graph.
#include "heddle/run/capture/capture.h"

#include <ostream>

#include "heddle/cli/torch/commands.h"
#include "heddle/cli/torch/job_flags.h"
#include "heddle/core/base/clock.h"
#include "heddle/core/ir/program.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/price/cost/cluster/cluster.h"

namespace heddle {
namespace {

struct CaptureCommand {
  static constexpr const char* kName = "capture";
  static constexpr const char* kNote =
      "Allocates no weights, so any model can be captured on any machine.";
  static constexpr const char* kExamples =
      "heddle capture --model=llama3 --flavor=8B --training.seq_len=8192 -o step.hd";

  ModelOptions model;
  run::OptimizerOptions optimizer;
  bool without_optimizer = false;
  std::string cluster = "h100-8x";
  std::string output;
  bool time = false;

  void Declare(Flags& flags) {
    DeclareStep(flags, model, &cluster);
    flags.Option("--cluster", cluster,
                 "cluster that the step is for: a name, or a JSON file; its device type is the "
                 "default of --runtime.device");
    DeclareOptimizer(flags, optimizer, without_optimizer);
    flags.Section("Output");
    flags.Switch("--time", time, "print time and peak memory of the capture to standard error");
    flags.Option("-o,--output=FILE", output, "file for the graph (default: standard output)");
  }
  Status Run(const Streams& streams) const;
};

Status CaptureCommand::Run(const Streams& streams) const {
  HEDDLE_RETURN_IF_ERROR(model.CheckNoWeights());
  HEDDLE_RETURN_IF_ERROR(price::LoadCluster(cluster));
  HEDDLE_TRY(run::Model made, model.Make());
  run::CaptureOptions options;
  if (!without_optimizer) options.optimizer = optimizer;
  Clock clock;
  HEDDLE_TRY(Module module, run::CaptureModel(made, options));
  Nanos captured = clock.Elapsed();
  std::string text = Print(module);
  if (time) {
    streams.err << fmt::format("capture {:.3f} s, print {:.3f} s, {} nodes, peak memory {}\n",
                               Seconds(captured), Seconds(clock.Elapsed() - captured),
                               SharedProgram(module).node_count(), Format(PeakMemory()));
  }
  return WriteGraph(output, text, streams);
}

}  // namespace

void AddCapture(CommandSet& commands) { commands.Add<CaptureCommand>(); }

}  // namespace heddle
