// Memory of a step whose groups of nodes run as kernels. Values inside a kernel have no storage.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "heddle/core/base/units.h"
#include "heddle/core/ir/graph.h"

namespace heddle::run {

struct KernelMemory {
  // The most at any time, inputs included. Workspaces of libraries come on top.
  Bytes peak;
  // Names and bytes of the values that exist then, without inputs, largest first.
  std::vector<std::pair<std::string, Bytes>> largest;
};
// Every kernel is taken to be proved.
KernelMemory MemoryWithKernels(const Graph& graph);

}  // namespace heddle::run
