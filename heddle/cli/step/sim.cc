// heddle sim: simulates a step on a cluster, from a graph file or a model.
#include "heddle/cli/step/sim.h"

#include "heddle/cli/commands.h"

namespace heddle {
namespace {

struct SimCommand {
  static constexpr const char* kName = "sim";
  static constexpr const char* kSummary =
      "Simulate a step on a cluster: time, exposed communication, memory";
  static constexpr const char* kNote =
      "Without FILE, captures and plans a model, and compares its pipeline with another one. "
      "Allocates no weights and needs no device. Clusters: h100-8x, h100-500w-8x, h200-8x, "
      "b200-8x, a100-8x, cpu, h100-autoparallel, or a JSON file. docs/cost.md describes clusters "
      "and files of measured "
      "times, docs/report.md the report of --html.";
  static constexpr const char* kExamples =
      "heddle sim final.hd --cluster=h100-8x\n"
      "heddle sim final.hd --trace=trace.json --json\n"
      "heddle sim --model=llama3 --flavor=8B --parallelism.data_parallel_shard_degree=64 "
      "--html=sim.html";

  explicit SimCommand(std::shared_ptr<SimulatedSource> of_model) : model(std::move(of_model)) {}

  // Null in a program without libtorch.
  std::shared_ptr<SimulatedSource> model;
  std::string file;
  SimFlags sim;
  SimOutputs outputs;
  std::string job;

  void Declare(Flags& flags) {
    flags.Positional("FILE", file, "graph of one rank, or - for standard input", {},
                     /*required=*/model == nullptr);
    if (model != nullptr) {
      model->Declare(flags, sim.cluster);
      for (const std::string& section : flags.Sections())
        flags.Excludes("FILE", section, "it applies to a model, but FILE is a graph");
    }
    sim.Declare(flags);
    outputs.Declare(flags);
    flags.Config(job);
  }
  Status Run(const Streams& streams) const {
    HEDDLE_RETURN_IF_ERROR(outputs.Check());
    HEDDLE_TRY(price::SimulateOptions options, sim.Options());
    if (file.empty()) return model->Simulate(sim, options, outputs, streams);
    HEDDLE_TRY(price::CostModel costs, sim.Load());
    HEDDLE_TRY(Module module, LoadModule(file, streams));
    HEDDLE_TRY(search::SimulatedModule simulated,
               search::SimulateModule(InputName(file), std::move(module), costs, options));
    return outputs.Write({&simulated, 1}, costs, streams);
  }
};

}  // namespace

void AddSim(CommandSet& commands, std::shared_ptr<SimulatedSource> model) {
  commands.Add<SimCommand>(std::move(model));
}

bool SimulatesFile(std::span<const std::string> args) {
  SimCommand command(nullptr);
  Flags flags;
  command.Declare(flags);
  return flags.Read(SimCommand::kName, args).ok();
}

}  // namespace heddle
