// What the passes of this folder ask of a node, answered once for equal nodes: layers of a model repeat.
#pragma once

#include <vector>

#include "heddle/compile/shard/placing.h"
#include "heddle/core/ir/edit/call_table.h"
#include "heddle/core/ir/graph.h"

namespace heddle::compile {

// A tensor made of nothing but attributes: every part of it can be made where it is needed.
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
  // PlaceNode for this node with these operands; errors name the node. `wanted` may be null; `goal` is replicated for none.
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
