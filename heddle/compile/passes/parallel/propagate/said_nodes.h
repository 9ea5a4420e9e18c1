// What the `node` statements of a plan say about the nodes of a graph.
#pragma once

#include <map>

#include "heddle/compile/plan/plan.h"
#include "heddle/compile/shard/op_splits.h"
#include "heddle/core/ir/graph.h"

namespace heddle::compile {

struct SaidNode {
  OpSplit split;
  // Of the plan.
  uint32_t line = 0;
};

// Fails where two statements differ about one node, and where one does not fit its operands and results.
Result<std::map<NodeId, SaidNode>> FindSaidNodes(const Graph& graph, const Plan& plan);

}  // namespace heddle::compile
