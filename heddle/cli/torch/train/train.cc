// heddle train: trains a model on ranks in this process, or in one for each.
#include <ostream>

#include "heddle/cli/torch/commands.h"
#include "heddle/cli/torch/train/training_job.h"

namespace heddle {
namespace {

struct TrainCommand {
  static constexpr const char* kName = "train";
  static constexpr const char* kSummary = "Train a model on one or many ranks";
  static constexpr const char* kNote =
      "Compiles the step for the mesh and trains with it: all ranks in this process, one process "
      "per rank with --nproc, or one rank if RANK is set, as torchrun does. With "
      "--checkpoint.folder, a run resumes from the newest checkpoint. SIGTERM and the first "
      "Ctrl-C save a checkpoint and end the run.";
  static constexpr const char* kExamples =
      "heddle train --model=llama3 --training.steps=100 --checkpoint.folder=runs/debug\n"
      "heddle train --config=job.toml --nproc=8 "
      "--parallelism.data_parallel_shard_degree=8\n"
      "torchrun --nproc-per-node=8 --no-python heddle train --config=job.toml";

  TrainingFlags flags;

  TrainCommand() {
    // What a laptop does in a second.
    flags.model.precision = "f32";
    flags.model.seq_len = 256;
  }
  void Declare(Flags& all) { flags.Declare(all); }
  ExitCode Run(const Streams& streams) const;

 private:
  ExitCode RunAs(const PeerAddress& address, const Streams& streams) const;
  ExitCode Launch(int64_t ranks, const SignalGate& gate, const Streams& streams) const;
};

// A job that lost a rank begins again from its newest checkpoint, unless it was asked to end.
ExitCode TrainCommand::Launch(int64_t ranks, const SignalGate& gate, const Streams& streams) const {
  for (int64_t restarts = 0;; ++restarts) {
    ProcessesEnd end = RunOnProcesses(ranks, flags.process, gate, streams);
    bool again = end.code == ExitCode::kFault && !end.stopped;
    if (!again || restarts == flags.job.max_restarts) return end.code;
    streams.err << fmt::format("restart {} of {}\n", restarts + 1, flags.job.max_restarts);
  }
}

ExitCode TrainCommand::Run(const Streams& streams) const {
  Result<std::optional<PeerAddress>> address = PeerAddress::FromEnvironment();
  if (!address.ok()) return Report(address.diagnostics(), streams);
  if (*address) return RunAs(**address, streams);
  bool launches = flags.process.processes > 0;
  std::optional<SignalGate> gate;
  std::optional<SetupGuard> setup;
  if (launches) setup.emplace(gate.emplace());
  TrainingJob job(flags, streams);
  Status prepared = job.Prepare(launches ? std::optional(flags.process.processes) : std::nullopt);
  if (!prepared.ok()) return Report(prepared.diagnostics(), streams);
  streams.out << job.Screen() << std::flush;
  setup.reset();
  if (launches) return Launch(job.ranks(), *gate, streams);
  Status opened = job.Open();
  if (!opened.ok()) return Report(opened.diagnostics(), streams);
  Result<ExitCode> trained = job.Train();
  if (trained.ok()) return *trained;
  Report(trained.diagnostics(), streams);
  return ExitCode::kFault;
}

ExitCode TrainCommand::RunAs(const PeerAddress& address, const Streams& streams) const {
  TrainingJob job(flags, streams);
  auto work = [&](Peers& peers) -> Result<ExitCode> {
    HEDDLE_RETURN_IF_ERROR(job.Join(peers));
    HEDDLE_RETURN_IF_ERROR(job.Open());
    return job.Train();
  };
  return RunAsRank(
      address, flags.process, [&] { return job.Prepare(address.world_size, address.local_rank); },
      work, streams);
}

}  // namespace

void AddTrain(CommandSet& commands) { commands.Add<TrainCommand>(); }

}  // namespace heddle
