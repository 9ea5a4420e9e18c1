// MatmulTuner: measures the algorithms of cuBLASLt for matrix products of a step.
#pragma once

#include <memory>

#include "heddle/run/runtime/device/matmuls.h"

namespace heddle::run {

class MatmulTuner {
 public:
  virtual ~MatmulTuner() = default;
  // Fails without a GPU, NVRTC or cuBLASLt.
  static Result<std::unique_ptr<MatmulTuner>> Open(c10::Device device);

  // The stored choice of an earlier run.
  virtual std::optional<MatmulChoice> Find(const MatmulShape& shape) const = 0;
  // Measures at::mm and all algorithms with its bits, and stores the choice. Fails if the choice
  // cannot be stored, or the product does not fit into memory.
  virtual Result<MatmulChoice> Tune(const MatmulShape& shape) const = 0;
};

}  // namespace heddle::run
