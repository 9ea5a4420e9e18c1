// The memory timeline of a graph in its order: bytes of one memory that must exist while each node runs.
#pragma once

#include <vector>

#include "heddle/core/analysis/liveness.h"

namespace heddle {

struct MemoryTimeline {
  // By node.
  std::vector<Bytes> live;
  // The most at any node, or the inputs alone if there are no nodes; and the first node where it occurs.
  Bytes peak;
  NodeId peak_node;
  // What exists at that node, the largest first.
  std::vector<StorageId> alive_at_peak;
  // Of the peak: what the caller holds.
  Bytes inputs;
};

MemoryTimeline ComputeMemoryTimeline(const Graph& graph, const Liveness& liveness,
                                     Space space = Space::kDevice);

// Memory of the values that exist between the last node of forward and the first of backward,
// without the caller's tensors.
Bytes KeptForBackward(const Graph& graph);

}  // namespace heddle
