// Finds cycles in a graph that does not list its nodes in order. Only for reporting: a verified graph has none.
#pragma once

#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle {

class CycleFinder {
 public:
  explicit CycleFinder(const Graph& graph);

  // Node `user` reads a result of `producer`. If `producer` in turn depends on `user`, the nodes of one such cycle,
  // starting at `producer`; otherwise nothing.
  std::vector<NodeId> Path(NodeId user, NodeId producer) const;

 private:
  const Graph& graph_;
  // Which nodes are on a cycle, or between two.
  Table<NodeId, bool> tangled_;
};

}  // namespace heddle
