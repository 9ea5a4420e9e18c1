// Hashes of the state of ranks, as lines of JSON, to compare runs of separate programs.
//
//   {"step":1,"rank":0,"loss":"0x1.04fe7ep+3"}
//   {"step":1,"rank":0,"name":"layers.0.attention.wq.weight","shape":[16,64],"sha256":"..."}
//   {"step":1,"rank":0,"name":"layers.0.attention.wq.weight.grad","shape":[16,64],"sha256":"..."}
//
// A hash covers the raw bytes of a rank's shard: of the master weights after the step (the plain
// name), of the gradient before clipping (`.grad`), and of the optimizer's state (`.exp_avg`,
// `.exp_avg_sq`, `.momentum_buffer`).
#pragma once

#include <string>

#include "heddle/run/capture/capture.h"
#include "heddle/run/train/training_run.h"

namespace heddle::run {

// Returns the lines of the last step for all ranks of this process: by rank, parameters in
// registration order.
std::string HashLines(const TrainingRun& run, std::span<const ParamSpec> params, bool gradients,
                      bool moments = false);
// Returns the line of one tensor.
std::string HashLine(int64_t step, int64_t rank, const std::string& name, const at::Tensor& tensor);

}  // namespace heddle::run
