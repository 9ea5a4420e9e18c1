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
  // Timeout for waits between processes.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  // Further lines that must be the same on all ranks, in addition to model, plan, graphs and data.
  std::string values = {};
};

// Receives the progress of a job. If ranks are processes, only rank 0 reports notes and steps.
class JobObserver {
 public:
  virtual ~JobObserver() = default;
  // A line for people.
  virtual void Note(const std::string& /*line*/) {}
  // The step is compiled.
  virtual void Compiled(const compile::CompileReport& /*report*/) {}
  // A job that had started failed.
  virtual void Failed(const Diagnostics& /*diagnostics*/) {}
};

class JobRun {
 public:
  int64_t ranks() const { return graphs().step.mesh.ranks(); }
  const PlannedStep& planned() const { return compiled_->planned; }
  const compile::CompileReport& report() const { return compiled_->report; }

 protected:
  // Both must outlive this object.
  JobRun(const SharedJobOptions& options, JobObserver& observer)
      : given_(options), model_options_(options.model), observer_(observer) {}

  // Opens the device and checks options. If ranks are processes, `processes` is their number (0:
  // one per rank of the mesh), and `local_rank` is the number of this process on its machine, if it
  // is a rank.
  Status OpenDevice(std::optional<int64_t> processes, std::optional<int64_t> local_rank);
  // `for_training` adds metrics, and the memory statistics of every pass.
  Status CompileGraphs(bool for_training);
  // Checks the number of processes, and opens initial weights and data.
  Status OpenInputs();
  // Restricts this process to its own rank. Fails if the other ranks run another job.
  Status Agree(run::Peers& peers);
  // Whether coordinates of a pipeline run different graphs.
  bool has_pipeline() const { return plan().decisions.stages.has_value(); }
  // Options for a run of this process's ranks, or of all ranks with `lockstep`.
  run::SessionOptions OptionsOfSession(bool lockstep = false) const;
  Result<std::unique_ptr<run::GraphRun>> MakeGraphRun(const StepGraphs& graphs,
                                                      const run::SessionOptions& options) const;

  const StepGraphs& graphs() const { return compiled_->graphs; }
  // The complete plan, with the decisions of options and searches.
  const compile::Plan& plan() const { return compiled_->plan; }
  const run::Model& model() const { return compiled_->planned.model; }
  int64_t micro_batches() const { return planned().micro_batches(); }
  // Whether this process reports for the job.
  bool leads() const { return peers_ == nullptr || peers_->rank() == 0; }
  void Say(const std::string& line) const {
    if (leads()) observer_.Note(line);
  }

  // The learning rate is an operand of the graph, and a number in PyTorch. ATen's kernels for GPUs
  // multiply and add in one rounding only for a number. The fused AdamW has the same kernel in both.
  bool RoundsUpdatesTwice() const {
    return !device_.is_cpu() && !given_.optimization.optimizer.fused();
  }

  const SharedJobOptions& given_;
  // The options of the graphs' model.
  ModelOptions model_options_;
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
