// Eager training (heddle/run/eager) as a run, for graphs to be held against.
#pragma once

#include <memory>

#include "heddle/run/capture/capture.h"
#include "heddle/run/runtime/reducer.h"
#include "heddle/run/train/session.h"
#include "heddle/run/train/training_run.h"

namespace heddle::run {

struct EagerOptions {
  // Ranks along each kind of parallelism. Rank = (replica * shard + part) * tensor + slice.
  int64_t replicate = 1;
  int64_t shard = 1;
  int64_t tensor = 1;
  // Of the ranks of a replica, how many share the experts.
  int64_t expert = 1;
  bool sequence_parallel = true;
  bool split_loss = true;
  // Tensor-parallel ranks that share each expert.
  int64_t expert_tensor = 1;
  Reducer reducer = Reducer();
  OptimizerOptions optimizer;
  // Gradients are summed in bf16.
  bool narrow_grads = false;
  // That ranks without tensor or expert parallelism share; with it every rank has one.
  int64_t threads = 1;
  ParamSource params;
  BatchSource batches;
  c10::Device device = c10::kCPU;
};

// Fails for what is not written eagerly, and says what can be done instead.
Status CheckEagerExists(const Model& model, const EagerOptions& options);
// The model must outlive the run.
Result<std::unique_ptr<TrainingRun>> MakeEagerRun(const Model& model, const EagerOptions& options);

}  // namespace heddle::run
