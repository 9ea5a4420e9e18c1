// TrainingJob: a training run. It resumes from checkpoints, compares the ranks, saves, logs, and
// handles losses that are not finite. api::Train (train.h) runs one from begin to end.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "heddle/api/agreement.h"
#include "heddle/api/hash_log.h"
#include "heddle/api/loop_options.h"
#include "heddle/api/optimization_options.h"
#include "heddle/api/step_graphs.h"
#include "heddle/price/cost/cluster/cluster.h"
#include "heddle/run/checkpoint/checkpoint.h"
#include "heddle/run/checkpoint/writer.h"
#include "heddle/run/metrics/step_metrics.h"
#include "heddle/run/train/device.h"
#include "heddle/run/train/run_memory.h"
#include "heddle/run/train/run_state.h"
#include "heddle/run/train/stop_signals.h"

namespace heddle {

struct TrainOptions {
  ModelOptions model = {.precision = "f32", .deterministic = true};
  ParallelOptions parallel = {};
  CompileFor compile = StandardCompile;
  OptimizationOptions optimization = {};
  LoopOptions loop = {};
  // How long processes wait for each other.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  // The job as TOML, which is saved with checkpoints.
  std::string job_file = {};
  // Optimizer, schedule and precision, by key: a run that resumes names the changed ones.
  std::vector<std::pair<std::string, std::string>> settings = {};
  // Lines that must be the same on all ranks, besides model, plan, graphs and data.
  std::string values = {};
};

class TrainingJob;

// Told of the progress of a job. If ranks are processes, rank 0 alone is told of notes and steps.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  // A line for people.
  virtual void Note(const std::string& /*line*/) {}
  // The step is compiled.
  virtual void Compiled(const compile::CompileReport& /*report*/) {}
  // The job is ready to begin, with all ranks in this process.
  virtual void Prepared(const TrainingJob& /*job*/) {}
  // The first step is next. A failure ends the job.
  virtual Status Begins(int64_t /*after_step*/) { return Done{}; }
  virtual void Trained(const run::StepMetrics& /*metrics*/) {}
  // No step follows.
  virtual void Ended() {}
  // A job that had begun failed.
  virtual void Failed(const Diagnostics& /*diagnostics*/) {}
};

struct TrainResult {
  run::TrainingEnd end = run::TrainingEnd::kFinished;
  // The last step; that of the checkpoint if there was none to train.
  int64_t step = 0;
  // Whether all checkpoints were written.
  bool saved = true;

  // The job trained all its steps, or as many as it was asked to, and saved them.
  bool ok() const {
    return saved && (end == run::TrainingEnd::kFinished || end == run::TrainingEnd::kStopped);
  }
};

class TrainingJob {
 public:
  // Both must outlive this.
  TrainingJob(const TrainOptions& options, TrainObserver& observer)
      : options_(options), observer_(observer) {}

  // Finds mistakes in options and files, and compiles. Unless all ranks are in this process,
  // `processes` is the number of the job's processes (0: one per rank of the mesh), and
  // `local_rank` the number of this one on its machine, if it is one of them.
  Status Prepare(std::optional<int64_t> processes,
                 std::optional<int64_t> local_rank = std::nullopt);
  int64_t ranks() const { return step_.mesh.ranks(); }
  const PlannedStep& planned() const { return *planned_; }
  // Its plan has all that options and searches decided.
  const compile::CompileReport& report() const { return report_; }
  // What will run, in one screen. `pipeline` is its name.
  std::string Describe(std::string_view pipeline) const;
  // From here on, this process has one rank only. Fails if the others do other work.
  Status Join(run::Peers& peers);
  // Finds the checkpoint to resume from and checks the data. Fails for wrong files.
  Status Open();
  Result<TrainResult> Train();

 private:
  bool speaks() const { return peers_ == nullptr || peers_->rank() == 0; }
  Status CheckOptions();
  Status FindPeak();
  Status CompileAll();
  Status CheckMemory() const;
  // What to change where parameters and moments, or all else, need too much memory.
  std::string StateAdvice() const;
  std::string ActivationAdvice() const;
  int64_t RanksHere() const;
  run::DeviceMemory OwnMemory() const;
  Status FindCheckpoint();
  Status CheckResumed(const run::Checkpoint& checkpoint);
  Status CheckTokens();
  Status OpenWriter();
  run::RunState State() const;
  run::StepModules Modules() const;
  // Memory of the run's session, and of the buffer for saves.
  run::RunMemory Memory() const;
  Bytes CheckpointBuffer() const;
  // Adds the initial state to `hash`, if that is not null.
  Result<std::unique_ptr<run::Session>> MakeSession(StateHash* hash = nullptr) const;
  Result<std::unique_ptr<run::Session>> MakeFirstSession() const;
  Status Save(const run::Session& session);
  Result<bool> Stops(int64_t step);
  Status Report(const run::Session& session, const run::TrainedStep& row);
  Result<TrainResult> End(const run::TrainingOutcome& outcome);
  Status ExplainNotFinite(const run::TrainedStep& row);
  void Say(const std::string& line) const;

  const TrainOptions& options_;
  TrainObserver& observer_;
  // Those of Prepare.
  std::optional<int64_t> processes_;
  std::optional<int64_t> local_rank_;
  // None if all ranks are in this process.
  run::Peers* peers_ = nullptr;
  c10::Device device_ = c10::kCPU;
  std::unique_ptr<run::Kernels> kernels_;
  std::unique_ptr<run::StepProfile> profile_;
  // Whose peak the log holds the step against.
  std::optional<price::Cluster> cluster_;
  std::optional<PlannedStep> planned_;
  run::Reducer reducer_;
  run::ParamSource params_;
  std::optional<run::Schedule> schedule_;
  std::unique_ptr<run::Dataset> dataset_;
  int64_t accumulated_ = 1;
  run::TrainerOptions trainer_;
  // Local graphs, and how the step became what it is.
  Module step_;
  std::optional<Module> first_;
  std::optional<Module> more_;
  std::optional<Module> forward_;
  compile::CompileReport report_;
  // With all that options and searches decide.
  compile::Plan compiled_plan_;
  // The largest token of the data. Not set if only a part was checked.
  std::optional<int64_t> largest_token_;
  // The checkpoint that the run resumes from.
  std::optional<run::Checkpoint> resumed_;
  std::unique_ptr<run::CheckpointWriter> writer_;
  bool save_async_ = true;
  HashLog hashes_;
  // While this lives, signals that ask for an end are heard here.
  std::optional<run::StopSignals> signals_;
};

}  // namespace heddle
