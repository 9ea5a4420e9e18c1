// Facts about nodes that several passes use, computed once for equal nodes, because layers repeat.
#pragma once

#include <vector>

#include "heddle/compile/shard/placing.h"
#include "heddle/core/ir/edit/call_table.h"
#include "heddle/core/ir/graph.h"

namespace heddle::compile {

// Whether the node computes a tensor from attributes only, so that any part of it can be created
// directly.
bool IsConstant(const Graph& graph, NodeId node);
bool IsZero(const Graph& graph, NodeId node);

class NodeFacts {
 public:
  NodeFacts(const Graph& graph, const Mesh& mesh) : graph_(graph), mesh_(mesh) {}

  // An opaque op has loops that cannot be split.
  Result<Factors> FactorsOf(NodeId node) const;

  struct Operand {
    ValueId value;
    PlacementId placement = PlacementTable::kReplicated;
    bool is_free = false;
    bool is_zero = false;
  };
  // PlaceNode for this node with these operands; errors name the node. `wanted` may be null. `goal`
  // is replicated if there is no goal.
  Result<const NodePlacing*> Place(NodeId node, const std::vector<Operand>& operands,
                                   const Axes& local, const std::vector<PlacementId>* wanted,
                                   PlacementId goal = PlacementTable::kReplicated);

 private:
  const Graph& graph_;
  const Mesh& mesh_;
  CallTable<NodePlacing> known_;
  CallKey key_;
};

}  // namespace heddle::compile
