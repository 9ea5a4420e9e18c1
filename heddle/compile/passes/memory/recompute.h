// Which nodes backward may recompute, and which recomputation marks request.
#pragma once

#include "heddle/core/analysis/launch.h"
#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle::compile {

// Whether running the node again gives the same bits. False if it draws random numbers, takes over
// a storage, or is unknown. Copies between memories are not recomputed.
bool CanRecompute(const Graph& graph, NodeId node);

inline bool AsksToRecompute(Keep keep) {
  return keep == Keep::kMustRecompute || keep == Keep::kPreferRecompute;
}
inline bool AsksToKeep(Keep keep) { return keep == Keep::kMustSave || keep == Keep::kOffload; }

// Whether `node` is after forward and reads `v`, a value of forward.
inline bool Crosses(const Graph& graph, NodeId node, ValueId v) {
  return graph[node].phase != Phase::kForward && v && graph[v].producer &&
         graph[graph[v].producer].phase == Phase::kForward;
}

// The values required to recompute `node`: its operands; for a wait, those of its launch, which is
// repeated, too.
std::span<const ValueId> NeededAgain(const Graph& graph, NodeId node);

// Fails if a node after forward reads a value that must be recomputed but cannot be.
Status CheckMarks(const Graph& graph);

}  // namespace heddle::compile
