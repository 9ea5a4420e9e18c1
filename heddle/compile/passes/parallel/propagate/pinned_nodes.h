// Nodes of a graph whose splits a plan's `node` statements pin.
#pragma once

#include <map>

#include "heddle/compile/plan/plan.h"
#include "heddle/compile/shard/op_splits.h"
#include "heddle/core/ir/graph.h"

namespace heddle::compile {

struct PinnedNode {
  OpSplit split;
  // Line of the statement in the plan.
  uint32_t line = 0;
};

// Fails if two statements differ about one node, or if one does not fit the node's operands and
// results.
Result<std::map<NodeId, PinnedNode>> FindPinnedNodes(const Graph& graph, const Plan& plan);

}  // namespace heddle::compile
