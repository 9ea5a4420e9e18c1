// Edits of several nodes at once: clones, and moves that keep dependence.
#include <algorithm>
#include <unordered_map>

#include "heddle/ir/edit/rewriter.h"
#include "heddle/ir/storage.h"

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

namespace {

using NodeOfValue = std::unordered_map<uint32_t, NodeId>;

// What a set of nodes makes, reads and takes over, while all of it moves past other nodes in one direction.
class MovingNodes {
 public:
  MovingNodes(const Graph& graph, const Rewriter& rewriter) : graph_(graph), rewriter_(rewriter) {}

  void Add(NodeId id) {
    for (ValueId v : graph_.results(id)) made_.emplace(v.index(), id);
    ForEachRead(graph_, id, [&](ValueId v) {
      read_.emplace(rewriter_.Resolve(v).index(), id);
      reads_.push_back({v, id});
    });
    ForEachTaken(id, [&](ValueId root) { taken_.emplace(root.index(), id); });
    if (!random_ && IsRandom(id)) random_ = id;
  }

  // One of the nodes added that must not pass `id`, or none.
  NodeId Against(NodeId id) {
    NodeId found;
    auto look = [&](const NodeOfValue& table, ValueId v) {
      auto at = table.find(v.index());
      if (!found && at != table.end()) found = at->second;
    };
    ForEachRead(graph_, id, [&](ValueId v) {
      look(made_, rewriter_.Resolve(v));
      if (!taken_.empty()) look(taken_, Root(v));
    });
    for (ValueId v : graph_.results(id)) look(read_, v);
    ForEachTaken(id, [&](ValueId root) { look(RootsRead(), root); });
    if (!found && random_ && IsRandom(id)) found = random_;
    return found;
  }

 private:
  bool IsRandom(NodeId id) const { return graph_.op(id).effect() == Effect::kRandom; }

  // What `value` is a view of, through any number of views and replacements.
  ValueId Root(ValueId value) const {
    for (;;) {
      value = rewriter_.Resolve(value);
      NodeId producer = graph_[value].producer;
      ValueId viewed = producer ? ViewedOperand(graph_, producer) : ValueId();
      if (!viewed) return value;
      value = viewed;
    }
  }

  // Worked out only where an update comes into sight: most graphs have none but in their optimizer.
  const NodeOfValue& RootsRead() {
    for (auto [v, id] : reads_) roots_read_.emplace(Root(v).index(), id);
    reads_.clear();
    return roots_read_;
  }

  template <typename Take>
  void ForEachTaken(NodeId id, Take&& take) const {
    if (graph_.op(id).effect() != Effect::kUpdate) return;
    size_t count = std::min(graph_[id].operand_count, graph_[id].result_count);
    for (size_t i = 0; i < count; ++i) {
      if (ValueId v = graph_.operands(id)[i]) take(Root(v));
    }
  }

  const Graph& graph_;
  const Rewriter& rewriter_;
  // By value, which of the nodes added; if there are several, the first. Storages go by their roots.
  NodeOfValue made_;
  NodeOfValue read_;
  NodeOfValue roots_read_;
  NodeOfValue taken_;
  // Reads that are not in roots_read_ yet.
  std::vector<std::pair<ValueId, NodeId>> reads_;
  NodeId random_;
};

}  // namespace

// Walks from `from` to the anchor, past it if `passes_anchor`, and finds what would block nodes of the set that go the same
// way.
std::optional<Rewriter::Blocked> Rewriter::FindBlocked(const std::vector<bool>& in_set, NodeId from,
                                                       NodeId anchor, bool passes_anchor) const {
  bool forward = Before(from, anchor);
  MovingNodes moving(graph_, *this);
  for (NodeId at = from;; at = forward ? NextOf(at) : PreviousOf(at)) {
    if (at == anchor && !passes_anchor) return std::nullopt;
    if (in_set[at.index()]) {
      moving.Add(at);
    } else if (!erased(at)) {
      NodeId against = moving.Against(at);
      if (against) return Blocked{against, at};
    }
    if (at == anchor) return std::nullopt;
  }
}

std::optional<Rewriter::Blocked> Rewriter::TryMove(std::span<const NodeId> nodes, NodeId anchor,
                                                   bool behind_anchor) {
  CheckNodeId(anchor);
  if (nodes.empty()) return std::nullopt;
  std::vector<NodeId> set = InOrder(nodes);
  std::vector<bool> in_set(graph_.node_count());
  for (NodeId node : set) in_set[node.index()] = true;
  HEDDLE_CHECK(!in_set[anchor.index()], "a node would move next to itself");
  // Nodes before the anchor pass it if they go behind it; nodes behind it, if they go before it.
  std::optional<Blocked> blocked;
  if (Before(set.front(), anchor))
    blocked = FindBlocked(in_set, set.front(), anchor, behind_anchor);
  if (!blocked && Before(anchor, set.back()))
    blocked = FindBlocked(in_set, set.back(), anchor, !behind_anchor);
  if (blocked) return blocked;
  NodeId behind = anchor;
  for (NodeId node : set) {
    uint32_t place = behind_anchor ? behind.index() : schedule().Previous(anchor.index());
    if (schedule().MoveAfter(node.index(), place)) edited_ = renumbers_ = true;
    behind = node;
  }
  return std::nullopt;
}

std::optional<Rewriter::Blocked> Rewriter::TryMoveBefore(std::span<const NodeId> nodes,
                                                         NodeId anchor) {
  return TryMove(nodes, anchor, false);
}

std::optional<Rewriter::Blocked> Rewriter::TryMoveAfter(std::span<const NodeId> nodes,
                                                        NodeId anchor) {
  return TryMove(nodes, anchor, true);
}

}  // namespace heddle
