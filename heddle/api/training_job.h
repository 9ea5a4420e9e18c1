// TrainingJob: a training run. It resumes from checkpoints, compares the ranks, saves, logs, and
// handles losses that are not finite. api::Train (train.h) runs one from beginning to end.
#pragma once

#include <memory>
#include <optional>

#include "heddle/api/job_run.h"
#include "heddle/price/cost/cluster/cluster.h"
#include "heddle/run/checkpoint/checkpoint.h"
#include "heddle/run/checkpoint/writer.h"
#include "heddle/run/metrics/step_metrics.h"
#include "heddle/run/sample/sampler.h"
#include "heddle/run/train/device.h"
#include "heddle/run/train/run_memory.h"
#include "heddle/run/train/run_state.h"
#include "heddle/run/train/stop_signals.h"

namespace heddle {

struct TrainOptions : SharedJobOptions {
  // The job as TOML; checkpoints store it.
  std::string job_file = {};
  // Optimizer, schedule and precision, by key. A resumed run reports the settings that differ.
  std::vector<std::pair<std::string, std::string>> settings = {};
};

class TrainingJob;

class TrainObserver : public JobObserver {
 public:
  // The job is ready, with all ranks in this process.
  virtual void Prepared(const TrainingJob& /*job*/) {}
  // The trace of `--profile` was written to `path`.
  virtual void Profiled(const TrainingJob& /*job*/, const std::string& /*path*/) {}
  // The first step is next. A failure ends the job.
  virtual Status Begins(int64_t /*after_step*/) { return Done{}; }
  virtual void Trained(const run::StepMetrics& /*metrics*/) {}
  // There are no further steps.
  virtual void Ended() {}
};

struct TrainResult {
  run::TrainingEnd end = run::TrainingEnd::kFinished;
  // The last step, or that of the checkpoint if no step was left to train.
  int64_t step = 0;
  // Whether all checkpoints were written.
  bool saved = true;

  // Whether the job trained all its steps, or stopped on request, and was saved.
  bool ok() const {
    return saved && (end == run::TrainingEnd::kFinished || end == run::TrainingEnd::kStopped);
  }
};

class TrainingJob : public JobRun {
 public:
  // Both must outlive this object.
  TrainingJob(const TrainOptions& options, TrainObserver& observer)
      : JobRun(options, observer), options_(options), watcher_(observer) {}

  // Checks options and files, and compiles. The arguments are those of OpenDevice.
  Status Prepare(std::optional<int64_t> processes,
                 std::optional<int64_t> local_rank = std::nullopt);
  // Returns a description of the run, in one screen.
  std::string Describe() const;
  // The compiled step of one rank: the last one, if there are several micro-batches.
  const Module& step() const { return graphs().step; }
  // The cluster of the device, if it is known or given.
  const std::optional<price::Cluster>& cluster() const { return cluster_; }
  bool on_cpu() const { return device_.is_cpu(); }
  // Restricts this process to its own rank. Fails if the other ranks run another job.
  Status Join(run::Peers& peers) { return Agree(peers); }
  // Finds the checkpoint to resume from, and checks the data.
  Status Open();
  Result<TrainResult> Train();

 private:
  Status FindPeak();
  Status MakeSampler();
  bool IsSampled(int64_t step) const { return sampler_ && step % options_.loop.sample_every == 0; }
  // Generates text with the weights after the last step.
  std::vector<run::TextSample> Sample(const run::GraphRun& run);
  Status CheckMemory() const;
  // Advice if the memory for parameters and moments, or for everything else, is too large.
  std::string StateAdvice() const;
  std::string ActivationAdvice() const;
  int64_t RanksHere() const;
  run::DeviceMemory OwnMemory() const;
  Status FindCheckpoint();
  Status CheckResumed(const run::Checkpoint& checkpoint);
  Status CheckTokens();
  Status OpenWriter();
  run::RunState State() const;
  // Memory of the run's sessions: by coordinate of a pipeline, or one for all ranks.
  std::vector<run::RunMemory> Memory() const;
  // Parameters and moments of this process's ranks.
  Bytes StateHere() const;
  Bytes CheckpointBuffer() const;
  Bytes SampleMemory() const;
  // Adds the initial state to `hash`, unless null.
  Result<std::unique_ptr<run::GraphRun>> MakeRun(StateHash* hash = nullptr) const;
  Result<std::unique_ptr<run::GraphRun>> MakeFirstRun() const;
  Status Save(const run::GraphRun& run);
  Result<bool> Stops(int64_t step);
  Status BeginProfile(const run::GraphRun& run);
  Status Report(const run::GraphRun& run, const run::TrainedStep& row);
  Result<TrainResult> End(const run::TrainingOutcome& outcome);
  Status ExplainNotFinite(const run::TrainedStep& row);

  const TrainOptions& options_;
  TrainObserver& watcher_;
  // Null without `--profile`.
  std::unique_ptr<run::StepProfile> profile_;
  // Its peak FLOP/s are those of the MFU.
  std::optional<price::Cluster> cluster_;
  run::TrainerOptions trainer_;
  // Unset without `--metrics.sample_every`.
  std::optional<run::Sampler> sampler_;
  // The largest token of the data. Unset if only a part was checked.
  std::optional<int64_t> largest_token_;
  // The checkpoint that the run resumes from.
  std::optional<run::Checkpoint> resumed_;
  std::unique_ptr<run::CheckpointWriter> writer_;
  // Records signals that ask the run to end, while it exists.
  std::optional<run::StopSignals> signals_;
};

}  // namespace heddle
