#include "heddle/core/ir/cycle.h"

#include <algorithm>

namespace heddle {

CycleFinder::CycleFinder(const Graph& graph) : graph_(graph), tangled_(graph.node_count(), true) {
  // Repeatedly remove nodes whose operands are all removed. The remaining nodes depend on a cycle.
  std::vector<std::vector<NodeId>> users(graph.node_count());
  std::vector<uint32_t> waits(graph.node_count(), 0);
  for (NodeId id : graph.nodes()) {
    for (ValueId v : graph.operands(id)) {
      if (!v || !graph[v].producer) continue;
      users[graph[v].producer.index()].push_back(id);
      ++waits[id.index()];
    }
  }
  std::vector<NodeId> free;
  for (NodeId id : graph.nodes()) {
    if (waits[id.index()] == 0) free.push_back(id);
  }
  while (!free.empty()) {
    NodeId id = free.back();
    free.pop_back();
    tangled_[id] = false;
    for (NodeId user : users[id.index()]) {
      if (--waits[user.index()] == 0) free.push_back(user);
    }
  }
}

std::vector<NodeId> CycleFinder::Path(NodeId user, NodeId producer) const {
  if (!tangled_[user] || !tangled_[producer]) return {};
  // Breadth-first search from `producer` along operands to `user`.
  Table<NodeId, NodeId> parent(graph_.node_count());
  std::vector<NodeId> queue{producer};
  parent[producer] = producer;
  for (size_t at = 0; at < queue.size() && !parent[user]; ++at) {
    for (ValueId v : graph_.operands(queue[at])) {
      NodeId next = v ? graph_[v].producer : NodeId();
      if (!next || !tangled_[next] || parent[next]) continue;
      parent[next] = queue[at];
      queue.push_back(next);
    }
  }
  if (!parent[user]) return {};
  std::vector<NodeId> path;
  for (NodeId at = user; at != producer; at = parent[at]) path.push_back(at);
  path.push_back(producer);
  std::ranges::reverse(path);
  return path;
}

}  // namespace heddle
