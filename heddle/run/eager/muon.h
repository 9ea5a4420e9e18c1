// Muon's orthogonalization in eager code: the reference that graphs are compared with.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/run/capture/capture.h"

namespace heddle::run {

// Returns the change of a matrix, to be multiplied by the negative learning rate.
at::Tensor EagerOrthogonalized(const at::Tensor& direction, const OptimizerOptions& options);

}  // namespace heddle::run
