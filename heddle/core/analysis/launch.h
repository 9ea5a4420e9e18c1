// Launches: nodes that start an operation which a wait ends.
#pragma once

#include "heddle/core/ir/graph.h"
#include "heddle/core/ir/storage.h"
#include "heddle/core/ops/ops.h"

namespace heddle {

// Whether the node starts an operation that a wait ends.
inline bool IsLaunch(const Graph& graph, NodeId id) {
  return graph.op(id).effect() == Effect::kComm && graph[id].op != op::comm_wait;
}

// The node that launched the operation `node` waits for, or none.
inline NodeId LaunchOf(const Graph& graph, NodeId node) {
  if (!IsWait(graph, node)) return {};
  ValueId handle = graph.operands(node)[0];
  return handle ? graph[handle].producer : NodeId();
}

}  // namespace heddle
