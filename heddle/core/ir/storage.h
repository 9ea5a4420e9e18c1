// Who shares storage with whom, and which update takes a storage over.
//
// A view shares the storage of its operand 0. Result i of an update takes over the storage of operand i: what the operand
// showed is gone from then on, whatever view it is read through. A list that the update spares (OpDef::spared) is the
// exception: where nothing uses the result, nothing happened to the operand. A collective reads its operands until its wait.
//
// All of this follows from the ops and the order of nodes; liveness adds how long storages exist.
#pragma once

#include "heddle/core/ir/graph.h"

namespace heddle {

// Whether the node waits for an async value.
bool IsWait(const Graph& graph, NodeId node);

// Calls `read` with each value that the node reads. A wait reads what its collective was given, too.
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

// What the results of a view share their storage with; none if the node is not a view.
ValueId ViewedOperand(const Graph& graph, NodeId node);

class Takeovers {
 public:
  explicit Takeovers(const Graph& graph);

  // Whether the graph has an update at all.
  bool any() const { return roots_.size() > 0; }
  // What `value` is a view of, through any number of views; itself if it is none. Values of one root show one storage in one
  // state: the result of an update has a root of its own.
  ValueId root(ValueId value) const { return any() ? roots_[value] : value; }
  // Whether result `i` of the node takes over the storage of operand `i`.
  bool Takes(NodeId node, size_t i) const;
  // The update that takes over the storage of `value`, itself or through a view, or none.
  NodeId taker(ValueId value) const { return any() ? takers_[roots_[value]] : NodeId(); }

 private:
  const Graph& graph_;
  // All empty if the graph has no update.
  Table<ValueId, ValueId> roots_;
  Table<ValueId, bool> used_;
  // By root. If there are several, the first.
  Table<ValueId, NodeId> takers_;
};

}  // namespace heddle
