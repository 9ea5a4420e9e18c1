#include "heddle/core/kernel/groups.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>

#include "heddle/core/analysis/liveness.h"
#include "heddle/core/ir/edit/rewriter.h"
#include "heddle/core/kernel/element.h"
#include "heddle/core/kernel/group_finder.h"
#include "heddle/core/ops/ops.h"

namespace heddle {
namespace {

// Numbers runs of nodes that may be reordered, from 1. Nodes that stay have 0.
std::vector<uint32_t> Segments(const Graph& graph, const std::vector<bool>& fixed) {
  std::vector<uint32_t> segments;
  uint32_t segment = 1;
  for (NodeId node : graph.nodes()) {
    Effect effect = graph.op(node).effect();
    bool stays = fixed[node.index()] || (effect != Effect::kPure && effect != Effect::kView);
    if (stays && (segments.empty() || segments.back() != 0)) ++segment;
    segments.push_back(stays ? 0 : segment);
  }
  return segments;
}

// Orders the nodes from `first` to `end` such that each unit is contiguous. Among units whose
// operands exist, the unit with the earliest node is next.
void OrderSegment(const Graph& graph, const Uses& uses, const std::vector<uint32_t>& unit_of,
                  const std::map<uint32_t, std::vector<NodeId>>& members, uint32_t first,
                  uint32_t end, std::vector<NodeId>& order) {
  auto nodes_of = [&](uint32_t unit) {
    auto found = members.find(unit);
    return found == members.end() ? std::vector<NodeId>{NodeId(unit)} : found->second;
  };
  std::map<uint32_t, std::set<uint32_t>> after;
  std::map<uint32_t, size_t> missing;
  for (uint32_t n = first; n < end; ++n) {
    missing.try_emplace(unit_of[n], 0);
    for (ValueId result : graph.results(NodeId(n))) {
      for (const Use& use : uses.of(result)) {
        uint32_t user = use.node.index();
        if (user >= end || unit_of[user] == unit_of[n]) continue;
        if (after[unit_of[n]].insert(unit_of[user]).second) ++missing[unit_of[user]];
      }
    }
  }
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
  for (const auto& [unit, count] : missing) {
    if (count == 0) ready.push(unit);
  }
  size_t before = order.size();
  while (!ready.empty()) {
    uint32_t unit = ready.top();
    ready.pop();
    std::vector<NodeId> nodes = nodes_of(unit);
    order.insert(order.end(), nodes.begin(), nodes.end());
    for (uint32_t next : after[unit]) {
      if (--missing[next] == 0) ready.push(next);
    }
  }
  HEDDLE_CHECK(order.size() - before == end - first, "groups of nodes depend on each other");
}

// Orders neighbouring matrix products to lower the peak of memory. In backward, the gradient of the
// input comes first: the cast weight is free after it, and the gradient of the weight takes its
// place.
class MatmulOrder {
 public:
  MatmulOrder(const Graph& graph, const std::vector<uint32_t>& segments, std::vector<NodeId>& order)
      : graph_(graph), segments_(segments), order_(order), liveness_(graph) {
    last_.resize(liveness_.storages().size());
    for (uint32_t p = 0; p < order.size(); ++p) {
      for (ValueId operand : graph.operands(order[p])) {
        if (operand && liveness_.of(operand)) last_[liveness_.of(operand).index()] = p;
      }
    }
  }

  void Improve() {
    for (uint32_t a = 0; a + 1 < order_.size(); ++a) {
      const uint32_t first_at = a;
      if (!IsMatmul(order_[a])) continue;
      // Views between the two go with the second.
      uint32_t b = a + 1;
      while (b < order_.size() && graph_.op(order_[b]).effect() == Effect::kView) ++b;
      if (b == order_.size() || !IsMatmul(order_[b]) || !IsIndependent(a, b)) continue;
      int64_t first = Allocated(a);
      int64_t second = Allocated(b);
      int64_t now = std::max(first, first - Freed(a, b) + second);
      int64_t swapped = std::max(second, second - Freed(b, a) + first);
      // The next pair begins with the second, or after both.
      a = b - 1;
      if (swapped >= now) continue;
      std::rotate(order_.begin() + first_at, order_.begin() + first_at + 1, order_.begin() + b + 1);
      a = b;
    }
  }

 private:
  bool IsMatmul(NodeId node) const { return graph_[node].op == op::mm; }
  uint32_t SegmentAt(uint32_t place) const { return segments_[order_[place].index()]; }
  // No node after `a` up to `b` depends on `a`, and all may change places.
  bool IsIndependent(uint32_t a, uint32_t b) const {
    for (uint32_t p = a + 1; p <= b; ++p) {
      if (SegmentAt(p) == 0 || SegmentAt(p) != SegmentAt(a)) return false;
      for (ValueId operand : graph_.operands(order_[p])) {
        if (operand && graph_[operand].producer == order_[a]) return false;
      }
    }
    return true;
  }
  int64_t Allocated(uint32_t place) const {
    return graph_.types().bytes(graph_.type(graph_[order_[place]].first_result)).value;
  }
  // Storages that only the node at `place` still needs, and that the one at `other` does not read.
  int64_t Freed(uint32_t place, uint32_t other) const {
    int64_t bytes = 0;
    for (ValueId operand : graph_.operands(order_[place])) {
      StorageId id = liveness_.of(operand);
      const Storage& storage = liveness_.storages()[id];
      bool dies = storage.birth && storage.death && last_[id.index()] == place;
      bool shared = std::ranges::any_of(graph_.operands(order_[other]),
                                        [&](ValueId value) { return liveness_.of(value) == id; });
      if (dies && !shared) bytes += storage.bytes.value;
    }
    return bytes;
  }

  const Graph& graph_;
  const std::vector<uint32_t>& segments_;
  std::vector<NodeId>& order_;
  Liveness liveness_;
  // By storage: the place of the last node that reads it.
  std::vector<uint32_t> last_;
};

// Whether a node outside `inside` reads the value, or a view of it in `inside`.
bool IsReadOutside(const Graph& graph, const Uses& uses, ValueId value,
                   const std::set<NodeId>& inside,
                   const std::map<NodeId, std::set<NodeId>>& repeats) {
  if (uses.is_output(value)) return true;
  NodeId producer = graph[value].producer;
  for (const Use& use : uses.of(value)) {
    if (inside.contains(use.node)) {
      if (IsFlatView(graph, use.node) &&
          IsReadOutside(graph, uses, graph[use.node].first_result, inside, repeats))
        return true;
      continue;
    }
    // The reader's group recomputes it.
    auto reader = repeats.find(use.node);
    if (reader == repeats.end() || !reader->second.contains(producer)) return true;
  }
  return false;
}

}  // namespace

ArrangedGraph ArrangeForKernels(const Graph& graph, const std::vector<bool>& fixed) {
  std::vector<uint32_t> segments = Segments(graph, fixed);
  std::vector<KernelGroup> groups = GroupFinder(graph, segments).Find();
  // A unit has the number of its first node.
  std::vector<uint32_t> unit_of(graph.node_count());
  for (uint32_t n = 0; n < unit_of.size(); ++n) unit_of[n] = n;
  std::map<uint32_t, std::vector<NodeId>> members;
  for (const KernelGroup& group : groups) {
    members[group.nodes.front().index()] = group.nodes;
    for (NodeId node : group.nodes) unit_of[node.index()] = group.nodes.front().index();
  }
  Uses uses(graph);
  std::vector<NodeId> order;
  for (uint32_t first = 0; first < segments.size();) {
    uint32_t end = first + 1;
    while (end < segments.size() && segments[end] == segments[first]) ++end;
    if (segments[first] == 0) {
      for (uint32_t n = first; n < end; ++n) order.emplace_back(n);
    } else {
      OrderSegment(graph, uses, unit_of, members, first, end, order);
    }
    first = end;
  }
  MatmulOrder(graph, segments, order).Improve();
  std::vector<NodeId> place(order.size());
  for (uint32_t n = 0; n < order.size(); ++n) place[order[n].index()] = NodeId(n);
  for (KernelGroup& group : groups) {
    for (NodeId& node : group.nodes) node = place[node.index()];
    for (NodeId& node : group.repeated) node = place[node.index()];
    if (group.norm) group.norm = place[group.norm.index()];
    std::ranges::sort(group.nodes);
    std::ranges::sort(group.repeated);
  }
  std::ranges::sort(groups, {}, [](const KernelGroup& group) { return group.nodes.front(); });
  ArrangedGraph arranged{graph, std::move(groups)};
  Rewriter rewriter(arranged.graph);
  rewriter.Reorder(order);
  rewriter.Commit();
  return arranged;
}

std::vector<ValueId> EscapingValues(const Graph& graph, const Uses& uses,
                                    const std::vector<KernelGroup>& groups, size_t group) {
  std::map<NodeId, std::set<NodeId>> repeats;
  for (const KernelGroup& other : groups) {
    if (other.repeated.empty()) continue;
    for (NodeId node : other.nodes) repeats[node] = {other.repeated.begin(), other.repeated.end()};
  }
  std::set<NodeId> inside(groups[group].nodes.begin(), groups[group].nodes.end());
  std::vector<ValueId> escaping;
  for (NodeId node : groups[group].nodes) {
    if (IsFlatView(graph, node)) continue;
    for (ValueId result : graph.results(node)) {
      if (IsReadOutside(graph, uses, result, inside, repeats)) escaping.push_back(result);
    }
  }
  return escaping;
}

}  // namespace heddle
