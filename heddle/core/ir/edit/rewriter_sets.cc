// Copies of several nodes.
#include <algorithm>
#include <unordered_map>

#include "heddle/core/ir/edit/rewriter.h"

namespace heddle {

std::vector<NodeId> Rewriter::InOrder(std::span<const NodeId> nodes) const {
  std::vector<NodeId> sorted(nodes.begin(), nodes.end());
  for (NodeId node : sorted) CheckNodeId(node);
  std::ranges::sort(sorted, [&](NodeId a, NodeId b) { return Before(a, b); });
  return sorted;
}

std::vector<NodeId> Rewriter::CloneBehind(NodeId behind, std::span<const NodeId> nodes,
                                          std::optional<Phase> phase) {
  std::unordered_map<uint32_t, NodeId> clone_of;
  std::unordered_map<uint32_t, ValueId> copy_of;
  std::vector<ValueId> operands;
  std::vector<ResultSpec> results;
  for (NodeId id : InOrder(nodes)) {
    const Node& node = graph_[id];
    operands.clear();
    for (ValueId v : graph_.operands(id)) {
      auto copy = copy_of.find(v.index());
      operands.push_back(copy == copy_of.end() ? v : copy->second);
    }
    results.clear();
    for (ValueId v : graph_.results(id))
      results.push_back({graph_.type(v), graph_.name(v), graph_[v].placement, graph_[v].keep});
    NodeSpec spec{.op = node.op,
                  .operands = operands,
                  .attrs = node.attrs,
                  .results = results,
                  .scope = node.scope,
                  .phase = phase.value_or(node.phase),
                  .stream = node.stream};
    behind = Insert(behind, spec);
    clone_of.emplace(id.index(), behind);
    for (size_t i = 0; i < results.size(); ++i)
      copy_of.emplace(graph_.results(id)[i].index(), graph_.results(behind)[i]);
  }
  std::vector<NodeId> clones;
  for (NodeId id : nodes) clones.push_back(clone_of.at(id.index()));
  return clones;
}

std::vector<NodeId> Rewriter::CloneBefore(NodeId anchor, std::span<const NodeId> nodes,
                                          std::optional<Phase> phase) {
  CheckNodeId(anchor);
  return CloneBehind(PreviousOf(anchor), nodes, phase);
}

std::vector<NodeId> Rewriter::CloneAfter(NodeId anchor, std::span<const NodeId> nodes,
                                         std::optional<Phase> phase) {
  CheckNodeId(anchor);
  return CloneBehind(anchor, nodes, phase);
}

}  // namespace heddle
