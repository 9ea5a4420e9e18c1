// A job in the form that the Python program of `heddle verify --against=pytorch` reads.
#pragma once

#include <string>

#include "heddle/api/loop_options.h"
#include "heddle/api/optimization_options.h"
#include "heddle/api/planned_step.h"

namespace heddle {

struct PyTorchJob {
  const ModelOptions& model;
  const ParallelOptions& parallel;
  const OptimizationOptions& train;
  const LoopOptions& job;
  const PlannedStep& step;
  // Number of micro-batches per step.
  int64_t accumulated = 1;
  // The flag --parallelism.reduce_before_scatter.
  bool reduce_first = false;
};

// How PyTorch distributes the job over ranks.
struct PyTorchLayout {
  int64_t replicate = 1;
  int64_t shard = 1;
  int64_t tensor = 1;
  // Consecutive ranks of `shard` that share the experts.
  int64_t expert = 1;
  bool sequence_parallel = true;
  bool split_loss = true;
  // Consecutive ranks of `shard` that have the same sequences.
  int64_t context = 1;
  bool context_heads = false;
  bool context_ring = false;
  bool head_tail = false;

  int64_t world() const { return replicate * shard * tensor; }
};

// Returns the layout. Fails if the program, FSDP2 or PyTorch's tensor parallelism does not support
// the job; the error names the flag, the model or the plan.
Result<PyTorchLayout> LayoutForPyTorch(const PyTorchJob& job);

// Writes `job.json`, the initial weights and, unless they are synthetic, the tokens of all steps
// into a folder.
Status WritePyTorchJob(const PyTorchJob& job, const PyTorchLayout& layout,
                       const run::ParamSource& params, const run::Dataset& dataset,
                       const std::string& folder);

}  // namespace heddle
