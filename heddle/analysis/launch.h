// Launches: nodes that start something which a wait ends.
#pragma once

#include "heddle/ir/graph.h"
#include "heddle/ops/ops.h"

namespace heddle {

inline bool IsLaunch(const Graph& graph, NodeId id) {
  return graph.op(id).effect() == Effect::kComm && graph[id].op != op::comm_wait;
}

}  // namespace heddle
