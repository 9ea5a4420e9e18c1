// Memory timeline of a graph in its order: the bytes of one memory space that exist while each node
// runs.
#pragma once

#include <vector>

#include "heddle/core/analysis/liveness.h"

namespace heddle {

struct MemoryTimeline {
  // Indexed by node.
  std::vector<Bytes> live;
  // The maximum over all nodes, or the inputs if there are no nodes; and the first node with it.
  Bytes peak;
  NodeId peak_node;
  // The storages alive at that node, largest first.
  std::vector<StorageId> alive_at_peak;
  // The part of the peak that the caller holds.
  Bytes inputs;
};

// `liveness` must be that of `graph`.
MemoryTimeline ComputeMemoryTimeline(const Graph& graph, const Liveness& liveness,
                                     Space space = Space::kDevice);

// Memory of the values that exist between the last node of forward and the first of backward,
// without the caller's tensors.
Bytes KeptForBackward(const Graph& graph);

}  // namespace heddle
