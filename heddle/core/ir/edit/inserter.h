// Inserter: inserts nodes with one result.
#pragma once

#include <string_view>
#include <vector>

#include "heddle/core/ir/edit/rewriter.h"

namespace heddle {

class Inserter {
 public:
  // Both must outlive this.
  Inserter(Graph& graph, Rewriter& rewriter) : graph_(graph), rewriter_(rewriter) {}

  // The position of a new node, next to another one whose phase it has. After no node is the start
  // of the graph.
  struct Place {
    NodeId node;
    bool after = false;
    // The node whose scope the new one gets; none for `node`.
    NodeId like = {};
  };
  static Place Before(NodeId node) { return {node}; }
  static Place After(NodeId node) { return {node, true}; }
  // After the node that produces `v`, or at the start for an input.
  Place After(ValueId v) const { return {graph_[v].producer, true}; }

  // Returns the result, which gets a fresh name.
  ValueId Add(Place at, OpId op, std::string_view name, const std::vector<ValueId>& operands,
              const Attrs& attrs, TypeId type, PlacementId placement = PlacementTable::kReplicated);

 protected:
  Graph& graph_;
  Rewriter& rewriter_;
};

}  // namespace heddle
