// JobRun: the parts that training and verification share: device, compiled graphs, initial weights,
// data, and the other ranks.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "heddle/api/agreement.h"
#include "heddle/api/hash_log.h"
#include "heddle/api/loop_options.h"
#include "heddle/api/optimization_options.h"
#include "heddle/api/step_graphs.h"

namespace heddle {

struct SharedJobOptions {
  ModelOptions model = {.precision = DType::kF32, .deterministic = true};
  ParallelOptions parallel = {};
  search::CompileSettings compile = {};
  OptimizationOptions optimization = {};
  LoopOptions loop = {};
  // How long processes wait for each other.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  // Lines that must be the same on all ranks, besides model, plan, graphs and data.
  std::string values = {};
};

// Told of the progress of a job. If ranks are processes, rank 0 alone is told of notes and steps.
class JobObserver {
 public:
  virtual ~JobObserver() = default;
  // A line for people.
  virtual void Note(const std::string& /*line*/) {}
  // The step is compiled.
  virtual void Compiled(const compile::CompileReport& /*report*/) {}
  // A job that had begun failed.
  virtual void Failed(const Diagnostics& /*diagnostics*/) {}
};

class JobRun {
 public:
  int64_t ranks() const { return graphs().step.mesh.ranks(); }
  const PlannedStep& planned() const { return compiled_->planned; }
  const compile::CompileReport& report() const { return compiled_->report; }

 protected:
  // Both must outlive this.
  JobRun(const SharedJobOptions& options, JobObserver& observer)
      : given_(options), observer_(observer) {}

  // Opens the device and checks options. Unless all ranks are in this process, `processes` is the
  // number of the job's processes (0: one per rank of the mesh), and `local_rank` the number of this
  // one on its machine, if it is one of them.
  Status OpenDevice(std::optional<int64_t> processes, std::optional<int64_t> local_rank);
  // `for_training`: with metrics, and with the memory of every pass.
  Status CompileGraphs(bool for_training);
  // Checks the number of processes, and finds initial weights and data.
  Status OpenInputs();
  // From here on, this process has one rank only. Fails if the others do other work.
  Status Agree(run::Peers& peers);
  // A session of this process's ranks; of all ranks, if `lockstep` is set.
  run::SessionOptions OptionsOfSession(bool lockstep = false) const;
  Result<std::unique_ptr<run::Session>> MakeSession(const StepGraphs& graphs,
                                                    const run::SessionOptions& options) const;

  const StepGraphs& graphs() const { return compiled_->graphs; }
  // With all that options and searches decide.
  const compile::Plan& plan() const { return compiled_->plan; }
  const run::Model& model() const { return compiled_->planned.model; }
  int64_t micro_batches() const { return planned().micro_batches(); }
  // Whether this process speaks for the job.
  bool leads() const { return peers_ == nullptr || peers_->rank() == 0; }
  void Say(const std::string& line) const {
    if (leads()) observer_.Note(line);
  }

  const SharedJobOptions& given_;
  JobObserver& observer_;
  std::optional<int64_t> processes_;
  std::optional<int64_t> local_rank_;
  // Null if all ranks are in this process.
  run::Peers* peers_ = nullptr;
  c10::Device device_ = c10::kCPU;
  std::unique_ptr<run::Kernels> kernels_;
  run::Reducer reducer_;
  std::optional<run::Schedule> schedule_;
  std::optional<CompiledStep> compiled_;
  run::ParamSource params_;
  std::unique_ptr<run::Dataset> dataset_;
  HashLog hashes_;
};

}  // namespace heddle
