// Wraps eager training (heddle/run/eager) as a TrainingRun, to compare graphs with it.
#pragma once

#include <memory>

#include "heddle/run/capture/capture.h"
#include "heddle/run/eager/context_attention.h"
#include "heddle/run/runtime/reducer.h"
#include "heddle/run/train/session.h"
#include "heddle/run/train/training_run.h"

namespace heddle::run {

struct EagerOptions {
  // Degrees of parallelism, the slowest first in the order of ranks: replicate, shard, context,
  // tensor.
  int64_t replicate = 1;
  int64_t shard = 1;
  int64_t context = 1;
  ContextSplit context_split = {};
  int64_t tensor = 1;
  // Number of ranks of a replica that share the experts.
  int64_t expert = 1;
  bool sequence_parallel = true;
  bool split_loss = true;
  // Batches of a step and micro-batches of a batch, and the number of them whose gradients a rank
  // adds before it reduces them (DataParallelOptions).
  int64_t batches_of_step = 1;
  int64_t micro_batches = 1;
  int64_t reduce_every = 0;
  // The pipeline coordinate of each parameter; its ranks store no other parameters. Empty: no
  // pipeline.
  std::vector<int64_t> coordinates = {};
  // Number of tensor-parallel ranks that share each expert.
  int64_t expert_tensor = 1;
  Reducer reducer = Reducer();
  OptimizerOptions optimizer;
  // Sums gradients in bf16.
  bool narrow_grads = false;
  // Number of threads for ranks without context, tensor or expert parallelism. With it, every rank
  // has its own thread.
  int64_t threads = 1;
  ParamSource params;
  BatchSource batches;
  c10::Device device = c10::kCPU;
};

// Fails for options that the eager reference does not support, and suggests alternatives.
Status CheckEagerExists(const Model& model, const EagerOptions& options);
// The model must outlive the run.
Result<std::unique_ptr<TrainingRun>> MakeEagerRun(const Model& model, const EagerOptions& options);

}  // namespace heddle::run
