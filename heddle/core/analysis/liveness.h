// Liveness: the storages of a graph, with the first and last node that need each.
//
// A view shares the storage of its operand. A collective's inputs and outputs exist from its start
// to its wait; the wait's results are the outputs. An update takes over the storage of the state it
// replaces. Inputs exist throughout, because the caller holds them. Outputs exist from their node
// to the end.
#pragma once

#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle {

using StorageId = Id<struct StorageTag>;

// A block of memory, and the nodes between which it exists.
struct Storage {
  // The value that created it; for the output of a collective, the wait's result if there is one.
  ValueId value;
  Bytes bytes;
  Space space = Space::kDevice;
  // The node that allocates it; none for an input.
  NodeId birth;
  // The last node that needs it; none for the end of the graph.
  NodeId death;
};

class Liveness {
 public:
  explicit Liveness(const Graph& graph);

  const Table<StorageId, Storage>& storages() const { return storages_; }
  // The storage of a value. An async value has one for each element; this is the first.
  StorageId of(ValueId value) const { return storage_of_[value]; }
  bool alive_at(StorageId id, NodeId node) const {
    const Storage& s = storages_[id];
    return (!s.birth || s.birth <= node) && (!s.death || node <= s.death);
  }

 private:
  void Allocate(const Graph& graph, NodeId id);
  void Use(const Graph& graph, NodeId id);

  Table<StorageId, Storage> storages_;
  Table<ValueId, StorageId> storage_of_;
};

}  // namespace heddle
