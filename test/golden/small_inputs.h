// Numbers to run graphs on.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

// Whole inputs of the first graph: small whole numbers, of which sums are exact in any order. No zeros among floats, of which there are
// two; indexes from 0 to 2. The same for every graph with these inputs.
Result<std::vector<at::Tensor>> SmallInputs(const Module& module);

}  // namespace heddle
