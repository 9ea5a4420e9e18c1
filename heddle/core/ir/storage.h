// Shared storages, and the updates that take over storages.
//
// A view shares the storage of its operand 0. Result i of an update takes over the storage of
// operand i, whose value is then lost, also for all views of it. Exception: if the result of a
// spared list (OpDef::spared) is unused, the operand is unchanged. A collective reads its operands
// until its wait.
//
// All of this follows from the ops and the order of nodes. Liveness adds how long storages exist.
#pragma once

#include "heddle/core/ir/graph.h"

namespace heddle {

// Whether the node waits for an async value.
bool IsWait(const Graph& graph, NodeId node);

// Calls `read` with each value that the node reads. A wait also reads the operands of its
// collective.
template <typename Read>
void ForEachRead(const Graph& graph, NodeId node, Read&& read) {
  for (ValueId v : graph.operands(node)) {
    if (v) read(v);
  }
  if (!IsWait(graph, node)) return;
  ValueId handle = graph.operands(node)[0];
  NodeId start = handle ? graph[handle].producer : NodeId();
  if (!start) return;
  for (ValueId v : graph.operands(start)) {
    if (v) read(v);
  }
}

// The operand whose storage a view's results share; none if the node is not a view.
ValueId ViewedOperand(const Graph& graph, NodeId node);

// The buffer donations of a graph: updates whose results take over the storage of an operand.
class BufferDonations {
 public:
  explicit BufferDonations(const Graph& graph);

  // Whether the graph has any update.
  bool any() const { return roots_.size() > 0; }
  // The value that `value` views, through any number of views, or `value` itself. Values with the
  // same root show one storage in one state; the result of an update is its own root.
  ValueId root(ValueId value) const { return any() ? roots_[value] : value; }
  // Whether result `i` of the node takes over the storage of operand `i`.
  bool Takes(NodeId node, size_t i) const;
  // The update that takes over the storage of `value`, directly or through a view, or none.
  NodeId taker(ValueId value) const { return any() ? takers_[roots_[value]] : NodeId(); }

 private:
  const Graph& graph_;
  // All are empty if the graph has no update.
  Table<ValueId, ValueId> roots_;
  Table<ValueId, bool> used_;
  // Indexed by root. With several, the first.
  Table<ValueId, NodeId> takers_;
};

}  // namespace heddle
