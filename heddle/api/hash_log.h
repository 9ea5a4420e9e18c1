// HashLog: hashes of the tensors of all ranks after every step. If ranks are processes, rank 0
// writes all hashes.
#pragma once

#include <string>

#include "heddle/api/optimization_options.h"
#include "heddle/run/runtime/process/peers.h"
#include "heddle/run/train/training_run.h"

namespace heddle {

class HashLog {
 public:
  // `peers` is null if all ranks are in this process. Does nothing unless `options` names a file.
  Status Add(const OptimizationOptions& options, const run::TrainingRun& run,
             const run::Model& model, run::Peers* peers);
  Status Write(const OptimizationOptions& options, const run::Peers* peers) const;

 private:
  std::string lines_;
};

}  // namespace heddle
