// A job as the Python program of `heddle verify --against=pytorch` reads it.
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
  // Micro-batches of a step.
  int64_t accumulated = 1;
  // --parallelism.reduce_before_scatter
  bool reduce_first = false;
};

// How PyTorch spreads the job over ranks.
struct PyTorchLayout {
  int64_t replicate = 1;
  int64_t shard = 1;
  int64_t tensor = 1;
  // Neighbouring ranks of `shard` that share the experts.
  int64_t expert = 1;
  bool sequence_parallel = true;
  bool split_loss = true;

  int64_t world() const { return replicate * shard * tensor; }
};

// Fails with the flag, the model or the plan that FSDP2 and tensor parallelism of PyTorch do not
// have, or that the program does not support.
Result<PyTorchLayout> LayoutForPyTorch(const PyTorchJob& job);

// Writes `job.json`, the initial weights and, unless they are synthetic, the tokens of all steps
// into a folder.
Status WritePyTorchJob(const PyTorchJob& job, const PyTorchLayout& layout,
                       const run::ParamSource& params, const run::Dataset& dataset,
                       const std::string& folder);

}  // namespace heddle
