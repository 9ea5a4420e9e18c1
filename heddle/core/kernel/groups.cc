#include "heddle/core/kernel/groups.h"

#include <algorithm>
#include <queue>

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

// Orders nodes such that each unit, a group or a single node, is contiguous.
class UnitOrder {
 public:
  UnitOrder(const Graph& graph, const Uses& uses, const std::vector<KernelGroup>& groups)
      : graph_(graph),
        uses_(uses),
        groups_(groups),
        unit_of_(graph.node_count()),
        group_at_(graph.node_count(), kNone),
        missing_(graph.node_count()) {
    for (uint32_t n = 0; n < unit_of_.size(); ++n) unit_of_[n] = n;
    for (uint32_t g = 0; g < groups.size(); ++g) {
      uint32_t first = groups[g].nodes.front().index();
      group_at_[first] = g;
      for (NodeId node : groups[g].nodes) unit_of_[node.index()] = first;
    }
  }

  // Appends the nodes from `first` to `end`. Among units whose operands exist, the unit with the
  // earliest node is next.
  void OrderSegment(uint32_t first, uint32_t end, std::vector<NodeId>& order) {
    bool grouped = std::any_of(unit_of_.begin() + first, unit_of_.begin() + end,
                               [&](uint32_t unit) { return group_at_[unit] != kNone; });
    if (!grouped) {
      for (uint32_t n = first; n < end; ++n) order.emplace_back(n);
      return;
    }
    for (uint32_t n = first; n < end; ++n)
      ForReaders(NodeId(n), end, [&](uint32_t unit) { ++missing_[unit]; });
    std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
    for (uint32_t n = first; n < end; ++n) {
      if (unit_of_[n] == n && missing_[n] == 0) ready.push(n);
    }
    size_t before = order.size();
    auto append = [&](NodeId node) {
      order.push_back(node);
      ForReaders(node, end, [&](uint32_t unit) {
        if (--missing_[unit] == 0) ready.push(unit);
      });
    };
    while (!ready.empty()) {
      uint32_t unit = ready.top();
      ready.pop();
      if (group_at_[unit] == kNone)
        append(NodeId(unit));
      else
        std::ranges::for_each(groups_[group_at_[unit]].nodes, append);
    }
    HEDDLE_CHECK(order.size() - before == end - first, "groups of nodes depend on each other");
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  // Calls `take` for each use of a result in another unit before node `end`, with the unit.
  template <typename Take>
  void ForReaders(NodeId node, uint32_t end, Take take) const {
    for (ValueId result : graph_.results(node)) {
      for (const Use& use : uses_.of(result)) {
        uint32_t user = use.node.index();
        if (user < end && unit_of_[user] != unit_of_[node.index()]) take(unit_of_[user]);
      }
    }
  }

  const Graph& graph_;
  const Uses& uses_;
  const std::vector<KernelGroup>& groups_;
  // By node: its unit, which has the number of its first node.
  std::vector<uint32_t> unit_of_;
  // By unit: its group, and the number of its operands that do not exist yet.
  std::vector<uint32_t> group_at_;
  std::vector<uint32_t> missing_;
};

// Orders neighbouring matrix products to lower the peak of memory. In backward, the gradient of the
// input comes first: the cast weight is free after it, and the gradient of the weight takes its
// place.
class MatmulOrder {
 public:
  MatmulOrder(const Graph& graph, const Liveness& liveness, const std::vector<uint32_t>& segments,
              std::vector<NodeId>& order)
      : graph_(graph), segments_(segments), order_(order), liveness_(liveness) {
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
  const Liveness& liveness_;
  // By storage: the place of the last node that reads it.
  std::vector<uint32_t> last_;
};

// The group of a node, or null. The nodes of a group are neighbours.
const KernelGroup* GroupOf(const std::vector<KernelGroup>& groups, NodeId node) {
  auto after = std::ranges::upper_bound(
      groups, node, {}, [](const KernelGroup& group) { return group.nodes.front(); });
  if (after == groups.begin() || (after - 1)->nodes.back() < node) return nullptr;
  return &*(after - 1);
}

// Whether a node outside `group` reads the value, or a view of it in the group.
bool IsReadOutside(const Graph& graph, const Uses& uses, ValueId value,
                   const std::vector<KernelGroup>& groups, const KernelGroup& group) {
  if (uses.is_output(value)) return true;
  NodeId producer = graph[value].producer;
  return std::ranges::any_of(uses.of(value), [&](const Use& use) {
    if (group.nodes.front() <= use.node && use.node <= group.nodes.back())
      return IsFlatView(graph, use.node) &&
             IsReadOutside(graph, uses, graph[use.node].first_result, groups, group);
    // The reader's group may recompute it.
    const KernelGroup* reader = GroupOf(groups, use.node);
    return reader == nullptr || !std::ranges::binary_search(reader->repeated, producer);
  });
}

}  // namespace

ArrangedGraph ArrangeForKernels(Graph graph, const Uses& uses, const Liveness& liveness,
                                const std::vector<bool>& fixed) {
  std::vector<uint32_t> segments = Segments(graph, fixed);
  std::vector<KernelGroup> groups = GroupFinder(graph, uses, segments).Find();
  UnitOrder units(graph, uses, groups);
  std::vector<NodeId> order;
  order.reserve(segments.size());
  for (uint32_t first = 0; first < segments.size();) {
    uint32_t end = first + 1;
    while (end < segments.size() && segments[end] == segments[first]) ++end;
    if (segments[first] == 0) {
      for (uint32_t n = first; n < end; ++n) order.emplace_back(n);
    } else {
      units.OrderSegment(first, end, order);
    }
    first = end;
  }
  MatmulOrder(graph, liveness, segments, order).Improve();
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
  ArrangedGraph arranged{std::move(graph), std::move(groups)};
  Rewriter rewriter(arranged.graph);
  rewriter.Reorder(order);
  rewriter.Commit();
  return arranged;
}

ArrangedGraph ArrangeForKernels(const Graph& graph, const std::vector<bool>& fixed) {
  return ArrangeForKernels(graph, Uses(graph), Liveness(graph), fixed);
}

std::vector<ValueId> EscapingValues(const Graph& graph, const Uses& uses,
                                    const std::vector<KernelGroup>& groups, size_t group) {
  std::vector<ValueId> escaping;
  for (NodeId node : groups[group].nodes) {
    if (IsFlatView(graph, node)) continue;
    for (ValueId result : graph.results(node)) {
      if (IsReadOutside(graph, uses, result, groups, groups[group])) escaping.push_back(result);
    }
  }
  return escaping;
}

}  // namespace heddle
