// What backward may compute again, and what the marks of values ask for.
#pragma once

#include "heddle/core/analysis/launch.h"
#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle::compile {

// Whether a second run of the node gives the same bits: not if it draws random numbers, takes storage over, or is unknown. A copy
// between memories is not computed.
bool CanRecompute(const Graph& graph, NodeId node);

inline bool AsksToRecompute(Keep keep) {
  return keep == Keep::kMustRecompute || keep == Keep::kPreferRecompute;
}
inline bool AsksToKeep(Keep keep) { return keep == Keep::kMustSave || keep == Keep::kOffload; }

// Whether a node behind forward reads `v`, and forward made it.
inline bool Crosses(const Graph& graph, NodeId node, ValueId v) {
  return graph[node].phase != Phase::kForward && v && graph[v].producer &&
         graph[graph[v].producer].phase == Phase::kForward;
}

// What must be there to compute `node` again: its operands; for a wait, those of its launch, which is repeated with it.
std::span<const ValueId> NeededAgain(const Graph& graph, NodeId node);

// An error if a value that must be recomputed cannot be, and a node behind forward reads it.
Status CheckMarks(const Graph& graph);

}  // namespace heddle::compile
