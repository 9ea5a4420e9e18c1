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

// Whether the node is one end of a transfer between coordinates of a pipeline.
inline bool IsTransfer(const Graph& graph, NodeId id) {
  return graph[id].op == op::comm_send || graph[id].op == op::comm_recv;
}

// Whether another coordinate receives the node's operand, or the node waits until it has. No output
// needs these nodes, but other graphs do.
inline bool Sends(const Graph& graph, NodeId id) {
  NodeId launch = LaunchOf(graph, id);
  return graph[launch ? launch : id].op == op::comm_send;
}

}  // namespace heddle
