// Numbers for running graphs.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

// Returns whole inputs of the first graph: small whole numbers, whose sums are exact in any order.
// Floats are not zero, because zero has two signs; indices are 0 to 2. The numbers depend only on
// the inputs.
Result<std::vector<at::Tensor>> SmallInputs(const Module& module);

}  // namespace heddle
