// Memory of a step whose groups of nodes run as kernels. Values inside a kernel have no storage.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "heddle/core/base/units.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

struct KernelMemory {
  // Peak memory, including inputs, without workspaces of libraries.
  Bytes peak;
  Bytes inputs;
  // Values that forward leaves for backward.
  Bytes kept;
  // Names and bytes of the values at the peak, without inputs, largest first.
  std::vector<std::pair<std::string, Bytes>> largest;
};
// Assumes that every kernel is proved.
KernelMemory MemoryWithKernels(const Graph& graph);

}  // namespace heddle
