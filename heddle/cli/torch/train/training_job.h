// A training run as the command line describes it: prepared, joined with the other ranks of the job, trained.
#pragma once

#include <memory>
#include <optional>

#include "heddle/checkpoint/checkpoint.h"
#include "heddle/checkpoint/writer.h"
#include "heddle/cli/compile_flags.h"
#include "heddle/cli/torch/plan/planned_step.h"
#include "heddle/cli/torch/train/agreement.h"
#include "heddle/cli/torch/train/hash_log.h"
#include "heddle/cli/torch/train/job_flags.h"
#include "heddle/cli/torch/train/processes.h"
#include "heddle/cli/torch/train/train_flags.h"
#include "heddle/cost/cluster/cluster.h"
#include "heddle/metrics/training_log.h"
#include "heddle/report/summary.h"
#include "heddle/train/device.h"
#include "heddle/train/run_memory.h"
#include "heddle/train/run_state.h"
#include "heddle/train/stop_signals.h"

namespace heddle {

struct TrainingFlags {
  ModelFlags model;
  ParallelFlags parallel;
  CompileFlags compile{"fsdp"};
  TrainFlags train;
  JobFlags job;
  ProcessFlags process;
  // All of them as a file, which is written beside checkpoints.
  std::string text;
  // All of them, a line each, for comparing them with those of other ranks.
  std::string values;

  void Declare(Flags& flags);
};

class TrainingJob {
 public:
  TrainingJob(const TrainingFlags& flags, const Streams& streams)
      : flags_(flags), streams_(streams) {}

  // Everything that can be wrong with flags and files. Unless all ranks are in this process, `processes` is how many the job has;
  // 0: as many as the mesh has ranks.
  Status Prepare(std::optional<int64_t> processes, int64_t local_rank = 0);
  int64_t ranks() const { return step_.mesh.ranks(); }
  // What will run, in one screen.
  std::string Screen() const;
  // From here on, this process has one rank only. Fails if the others do other work.
  Status Join(Peers& peers);
  // What is wrong with checkpoints and files of the log, and the initial weights.
  Status Open();
  Result<ExitCode> Train();

 private:
  bool speaks() const { return peers_ == nullptr || peers_->rank() == 0; }
  Status CheckFlags(std::optional<int64_t> processes);
  Status FindPeak();
  Status CompileAll();
  Status CheckMemory() const;
  // What to change where parameters and moments, or all else, need too much memory.
  std::string StateAdvice() const;
  std::string ActivationAdvice() const;
  int64_t RanksHere() const;
  DeviceMemory OwnMemory() const;
  Status FindCheckpoint();
  Status CheckResumed(const Checkpoint& checkpoint);
  Status CheckTokens();
  Status OpenWriter();
  RunState State() const;
  StepModules Modules() const;
  // Memory of the run's session, and of the buffer for saves.
  RunMemory Memory() const;
  Bytes CheckpointBuffer() const;
  // Adds the initial state to `hash`, if that is not null.
  Result<std::unique_ptr<Session>> MakeSession(StateHash* hash = nullptr) const;
  Result<std::unique_ptr<Session>> MakeFirstSession() const;
  Status Save(const Session& session);
  Result<bool> Stops(int64_t step);
  Status Report(const Session& session, const TrainedStep& row);
  Result<ExitCode> End(const TrainingOutcome& outcome);
  Status ExplainNotFinite(const TrainedStep& row);
  void Say(const std::string& line) const;

  const TrainingFlags& flags_;
  const Streams& streams_;
  // None if all ranks are in this process.
  Peers* peers_ = nullptr;
  c10::Device device_ = c10::kCPU;
  std::unique_ptr<Kernels> kernels_;
  // Whose peak the log holds the step against.
  std::optional<Cluster> cluster_;
  std::optional<PlannedStep> planned_;
  Reducer reducer_;
  ParamSource params_;
  std::optional<Schedule> schedule_;
  std::unique_ptr<Dataset> dataset_;
  int64_t accumulated_ = 1;
  TrainerOptions trainer_;
  // Local graphs, and how the step became what it is.
  Module step_;
  std::optional<Module> first_;
  std::optional<Module> more_;
  std::optional<Module> forward_;
  CompileReport report_;
  StepSummary summary_;
  // The largest token of the data. Not set if only a part was checked.
  std::optional<int64_t> largest_token_;
  // Where the run goes on from.
  std::optional<Checkpoint> resumed_;
  std::unique_ptr<CheckpointWriter> writer_;
  std::unique_ptr<TrainingLog> log_;
  HashLog hashes_;
  // While this lives, signals that ask for an end are heard here.
  std::optional<StopSignals> signals_;
};

}  // namespace heddle
