// Hashes of what ranks hold, as lines of JSON, for runs to be compared that cannot see each other.
//
//   {"step":1,"rank":0,"loss":"0x1.04fe7ep+3"}
//   {"step":1,"rank":0,"name":"layers.0.attention.wq.weight","shape":[16,64],"sha256":"..."}
//   {"step":1,"rank":0,"name":"layers.0.attention.wq.weight.grad","shape":[16,64],"sha256":"..."}
//
// A hash is that of the raw bytes: of a rank's part of the master weights after the step (the plain name), of its gradient before
// clipping (`.grad` after the name), and of its moments (`.exp_avg`, `.exp_avg_sq`).
#pragma once

#include <string>

#include "heddle/run/capture/capture.h"
#include "heddle/run/train/training_run.h"

namespace heddle::run {

// Those of the last step of all ranks of this process: ranks in order, parameters in registration order.
std::string HashLines(const TrainingRun& run, std::span<const ParamSpec> params, bool gradients,
                      bool moments = false);
// The line of one tensor.
std::string HashLine(int64_t step, int64_t rank, const std::string& name, const at::Tensor& tensor);

}  // namespace heddle::run
