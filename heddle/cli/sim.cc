// heddle sim: a step on a cluster, before anybody runs it.
#include "heddle/cli/commands.h"
#include "heddle/cli/sim_flags.h"

namespace heddle {
namespace {

struct SimCommand {
  static constexpr const char* kName = "sim";
  static constexpr const char* kSummary =
      "Simulate a step on a cluster: time, exposed communication, memory";
  static constexpr const char* kNote =
      "With --model instead of FILE, captures and plans a model first: see `heddle help sim "
      "--model`. Clusters: h100-8x, h200-8x, b200-8x, a100-8x, cpu, h100-autoparallel, or a JSON "
      "file. docs/cost.md describes clusters and files of measured times, docs/report.md the "
      "report of --html.";
  static constexpr const char* kExamples =
      "heddle sim final.hd --cluster=h100-8x\n"
      "heddle sim final.hd --trace=trace.json --json";

  std::string file;
  SimFlags sim;
  SimOutputs outputs;
  std::string job;

  void Declare(Flags& flags) {
    flags.Positional("FILE", file, "graph of one rank, or - for standard input");
    sim.Declare(flags);
    outputs.Declare(flags);
    flags.Config(job);
  }
  ExitCode Run(const Streams& streams) const {
    Status status = Simulate(streams);
    return status.ok() ? ExitCode::kDone : Report(status.diagnostics(), streams);
  }

 private:
  Status Simulate(const Streams& streams) const;
};

Status SimCommand::Simulate(const Streams& streams) const {
  HEDDLE_RETURN_IF_ERROR(outputs.Check());
  HEDDLE_TRY(price::CostModel model, sim.Model());
  HEDDLE_TRY(price::SimulateOptions options, sim.Options());
  HEDDLE_TRY(Module module, LoadModule(file, streams));
  HEDDLE_TRY(SimulatedModule simulated,
             SimulateModule(InputName(file), std::move(module), model, options));
  return outputs.Write({&simulated, 1}, model, streams);
}

}  // namespace

void AddSim(CommandSet& commands) { commands.Add<SimCommand>(); }

}  // namespace heddle
