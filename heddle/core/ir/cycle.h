// Finds cycles in a graph whose nodes are not in order. Only for error messages: a verified graph
// has no cycles.
#pragma once

#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle {

class CycleFinder {
 public:
  explicit CycleFinder(const Graph& graph);

  // Node `user` reads a result of `producer`. If `producer` depends on `user`, returns the nodes of
  // one such cycle, starting at `producer`. Otherwise returns an empty list.
  std::vector<NodeId> Path(NodeId user, NodeId producer) const;

 private:
  const Graph& graph_;
  // Nodes on a cycle, or between two cycles.
  Table<NodeId, bool> tangled_;
};

}  // namespace heddle
