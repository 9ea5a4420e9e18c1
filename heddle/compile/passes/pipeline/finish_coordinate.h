// The last edits of a coordinate's graph, after unroll-pipeline has written all of its nodes.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle::compile {

// A copy of a node that runs once per group of micro-batches.
struct GroupNode {
  NodeId node;
  // Differs from that of other groups of the same unit.
  std::string group;
  Phase phase = Phase::kForward;
};

struct CoordinateParts {
  // The first node of each action, and the first node after all of them.
  std::vector<NodeId> begins;
  std::vector<GroupNode> group_nodes;
};

// Names the units of groups, as in `layers.0#2`, and launches each receive one action before the
// action that needs it.
void FinishCoordinate(const CoordinateParts& parts, Graph& graph);

}  // namespace heddle::compile
