// heddle train: trains a model on ranks in this process, or in one process per rank.
#include <ostream>

#include "heddle/api/train.h"
#include "heddle/cli/graph/pass_costs.h"
#include "heddle/cli/torch/commands.h"
#include "heddle/cli/torch/train/training_flags.h"
#include "heddle/cli/torch/train/wandb_options.h"
#include "heddle/core/base/file.h"
#include "heddle/core/ir/program.h"
#include "heddle/report/profile/profile.h"
#include "heddle/report/run/run_log.h"
#include "heddle/report/trace.h"
#include "heddle/run/metrics/training_log.h"

namespace heddle {
namespace {

class TrainingScreen;

struct TrainCommand {
  static constexpr const char* kName = "train";
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

  void Declare(Flags& all) { flags.Declare(all); }
  Result<ExitCode> Run(const Streams& streams) const;

 private:
  Result<ExitCode> RunOnRanks(const TrainOptions& options, TrainingScreen& screen,
                              const Streams& streams) const;
  ExitCode Launch(int64_t ranks, const run::SignalGate& gate, const Streams& streams) const;
};

// A job that lost a rank restarts from its newest checkpoint, unless a signal stopped it.
ExitCode TrainCommand::Launch(int64_t ranks, const run::SignalGate& gate,
                              const Streams& streams) const {
  for (int64_t restarts = 0;; ++restarts) {
    ProcessesEnd end = RunOnProcesses(ranks, flags.process, gate, streams);
    bool again = end.code == ExitCode::kFault && !end.stopped;
    if (!again || restarts == flags.options.loop.max_restarts) return end.code;
    streams.err << fmt::format("restart {} of {}\n", restarts + 1, flags.options.loop.max_restarts);
  }
}

// Prints the progress of a job.
class TrainingScreen final : public TrainObserver {
 public:
  TrainingScreen(const TrainingFlags& flags, const Streams& streams)
      : flags_(flags), streams_(streams) {}

  void Note(const std::string& line) override { streams_.err << line << "\n" << std::flush; }
  void Compiled(const compile::CompileReport& report) override {
    flags_.compile.Print(report, streams_);
    flags_.compile.PrintNotes(report, streams_);
  }
  void Prepared(const TrainingJob& job) override {
    streams_.out << job.Describe() << FormatCosts(job.report()) << "\n" << std::flush;
  }
  void Profiled(const TrainingJob& job, const std::string& path) override {
    Status written = WriteSimulation(job, path.substr(0, path.rfind('/')));
    if (!written.ok()) Report(written.diagnostics(), streams_);
  }
  Status Begins(int64_t after_step) override {
    const LoopOptions& loop = flags_.options.loop;
    std::string jsonl = loop.jsonl;
    if (jsonl.empty() && !loop.folder.empty())
      jsonl = fmt::format("{}/{}", loop.folder, kRunMetrics);
    std::optional<run::WandbOptions> wandb;
    if (!loop.wandb.empty()) {
      HEDDLE_TRY(wandb, WandbOptionsOf(loop.wandb, flags_.text));
    }
    HEDDLE_TRY(log_, run::TrainingLog::Open({.steps = flags_.options.optimization.steps,
                                             .after_step = after_step,
                                             .log_every = loop.log_every,
                                             .color = streams_.color,
                                             .jsonl = jsonl,
                                             .tensorboard = loop.tensorboard,
                                             .wandb = std::move(wandb)},
                                            streams_.out, streams_.err));
    return Done{};
  }
  void Trained(const run::StepMetrics& metrics) override { log_->Add(metrics); }
  void Ended() override { log_->Finish(); }
  void Failed(const Diagnostics& diagnostics) override {
    Report(diagnostics, streams_);
    has_failed_ = true;
  }
  bool has_failed() const { return has_failed_; }
  // The process ends with this code.
  void Close(ExitCode code) {
    if (log_) log_->Close(static_cast<int>(code));
  }

 private:
  // Writes the simulated step next to its profile, if the cluster of the device is known.
  Status WriteSimulation(const TrainingJob& job, const std::string& folder);

  const TrainingFlags& flags_;
  const Streams& streams_;
  std::unique_ptr<run::TrainingLog> log_;
  bool has_failed_ = false;
};

Status TrainingScreen::WriteSimulation(const TrainingJob& job, const std::string& folder) {
  std::optional<price::Cluster> cluster = job.cluster();
  if (!cluster && job.on_cpu()) {
    HEDDLE_TRY(cluster, price::LoadCluster("cpu"));
    Note(
        "the simulation next to the profile is on the cluster cpu, whose rates are guesses; fit "
        "them with heddle calibrate");
  }
  if (!cluster) {
    Note("no simulation next to the profile: the cluster of this device is not known");
    return Done{};
  }
  if (job.planned().micro_batches() > 1) {
    Note("no simulation next to the profile: the step has several micro-batches");
    return Done{};
  }
  if (ProgramAxis(job.step())) {
    Note("no simulation next to the profile: the step is a pipeline");
    return Done{};
  }
  HEDDLE_TRY(price::CostModel costs,
             price::CostModel::Make(*std::move(cluster),
                                    {.nodes = {}, .fused = true, .device_program = !job.on_cpu()}));
  const Graph& graph = SharedProgram(job.step());
  HEDDLE_TRY(price::Simulation simulation, price::Simulate(job.step(), graph, costs, {}));
  return WriteFile(folder + "/" + std::string(kSimulatedTrace),
                   FormatTrace(job.step(), {{&graph, &simulation}}));
}

// Compiles the job to find errors, and starts one process per rank.
Result<ExitCode> TrainCommand::RunOnRanks(const TrainOptions& options, TrainingScreen& screen,
                                          const Streams& streams) const {
  run::SignalGate gate;
  std::optional<run::SetupGuard> setup(gate);
  TrainingJob job(options, screen);
  HEDDLE_RETURN_IF_ERROR(job.Prepare(flags.process.processes));
  screen.Prepared(job);
  setup.reset();
  return Launch(job.ranks(), gate, streams);
}

Result<ExitCode> TrainCommand::Run(const Streams& streams) const {
  HEDDLE_RETURN_IF_ERROR(CheckOneOutput(
      {{"the hashes", flags.options.optimization.hashes == "-"}, {"the log", true}}));
  TrainOptions options = flags.Options();
  TrainingScreen screen(flags, streams);
  if (flags.process.processes > 0) {
    HEDDLE_RETURN_IF_ERROR(CheckNotRank());
    return RunOnRanks(options, screen, streams);
  }
  Result<TrainResult> trained = api::Train(options, screen);
  if (!trained.ok() && !screen.has_failed()) return std::move(trained).failure();
  ExitCode code = trained.ok() && trained->ok() ? ExitCode::kDone : ExitCode::kFault;
  screen.Close(code);
  return code;
}

}  // namespace

void AddTrain(CommandSet& commands) { commands.Add<TrainCommand>(); }

}  // namespace heddle
