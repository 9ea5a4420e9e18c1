// Memory of a step whose groups of nodes run as kernels. Values inside a kernel have no storage.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "heddle/core/base/units.h"
#include "heddle/core/ir/graph.h"
#include "heddle/core/kernel/groups.h"

namespace heddle {

struct KernelMemory {
  // Peak memory, including inputs and copies, without workspaces of libraries.
  Bytes peak;
  Bytes inputs;
  // Copies of parameters (weight_copies.h), which stay from step to step, and these parameters.
  Bytes copies;
  std::set<int64_t> copied;
  // Values that forward leaves for backward.
  Bytes kept;
  // Names and bytes of the values at the peak, without inputs, largest first.
  std::vector<std::pair<std::string, Bytes>> largest;
};
// Assumes that every kernel is proved. `copies` as for ArrangeStep.
KernelMemory MemoryWithKernels(const Graph& graph,
                               const std::optional<std::set<int64_t>>& copies = std::nullopt);

// Returns the parameters of a step that have copies. A kernel of AdamW updates them, and their
// copies, which exist throughout, do not raise the peak. Large ones are chosen first.
std::set<int64_t> CopiesWithinPeak(const ArrangedGraph& step);

}  // namespace heddle
