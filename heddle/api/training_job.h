// TrainingJob: a training run. It resumes from checkpoints, compares the ranks, saves, logs, and
// handles losses that are not finite. api::Train (train.h) runs one from begin to end.
#pragma once

#include <memory>
#include <optional>

#include "heddle/api/job_run.h"
#include "heddle/price/cost/cluster/cluster.h"
#include "heddle/run/checkpoint/checkpoint.h"
#include "heddle/run/checkpoint/writer.h"
#include "heddle/run/metrics/step_metrics.h"
#include "heddle/run/train/device.h"
#include "heddle/run/train/run_memory.h"
#include "heddle/run/train/run_state.h"
#include "heddle/run/train/stop_signals.h"

namespace heddle {

struct TrainOptions : SharedJobOptions {
  // The job as TOML, which is saved with checkpoints.
  std::string job_file = {};
  // Optimizer, schedule and precision, by key: a run that resumes names the changed ones.
  std::vector<std::pair<std::string, std::string>> settings = {};
};

class TrainingJob;

class TrainObserver : public JobObserver {
 public:
  // The job is ready to begin, with all ranks in this process.
  virtual void Prepared(const TrainingJob& /*job*/) {}
  // The first step is next. A failure ends the job.
  virtual Status Begins(int64_t /*after_step*/) { return Done{}; }
  virtual void Trained(const run::StepMetrics& /*metrics*/) {}
  // No step follows.
  virtual void Ended() {}
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

class TrainingJob : public JobRun {
 public:
  // Both must outlive this.
  TrainingJob(const TrainOptions& options, TrainObserver& observer)
      : JobRun(options, observer), options_(options), watcher_(observer) {}

  // Finds mistakes in options and files, and compiles. The arguments are those of OpenDevice.
  Status Prepare(std::optional<int64_t> processes,
                 std::optional<int64_t> local_rank = std::nullopt);
  // What will run, in one screen.
  std::string Describe() const;
  // From here on, this process has one rank only. Fails if the others do other work.
  Status Join(run::Peers& peers) { return Agree(peers); }
  // Finds the checkpoint to resume from and checks the data. Fails for wrong files.
  Status Open();
  Result<TrainResult> Train();

 private:
  Status FindPeak();
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
  // Memory of the run's session, and of the buffer for saves.
  run::RunMemory Memory() const;
  Bytes CheckpointBuffer() const;
  // Adds the initial state to `hash`, if that is not null.
  Result<std::unique_ptr<run::Session>> MakeRun(StateHash* hash = nullptr) const;
  Result<std::unique_ptr<run::Session>> MakeFirstRun() const;
  Status Save(const run::Session& session);
  Result<bool> Stops(int64_t step);
  Status Report(const run::Session& session, const run::TrainedStep& row);
  Result<TrainResult> End(const run::TrainingOutcome& outcome);
  Status ExplainNotFinite(const run::TrainedStep& row);

  const TrainOptions& options_;
  TrainObserver& watcher_;
  // Null without `--profile`.
  std::unique_ptr<run::StepProfile> profile_;
  // The cluster whose peak MFU is computed against.
  std::optional<price::Cluster> cluster_;
  run::TrainerOptions trainer_;
  // The largest token of the data. Not set if only a part was checked.
  std::optional<int64_t> largest_token_;
  // The checkpoint that the run resumes from.
  std::optional<run::Checkpoint> resumed_;
  std::unique_ptr<run::CheckpointWriter> writer_;
  // While this lives, signals that ask for an end are heard here.
  std::optional<run::StopSignals> signals_;
};

}  // namespace heddle
