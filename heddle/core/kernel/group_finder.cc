#include "heddle/core/kernel/group_finder.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "heddle/core/kernel/element.h"
#include "heddle/core/ops/ops.h"

namespace heddle {
namespace {

constexpr size_t kMostInputs = 12;
constexpr size_t kMostNodes = 32;
// Nodes that are further apart are not grouped: moving a node far changes the lifetimes of values.
constexpr size_t kWindow = 300;

DType DTypeOf(const Graph& graph, ValueId value) { return graph.types().dtype(graph.type(value)); }

bool IsCast(const Graph& graph, NodeId node, DType from, DType to) {
  return graph[node].op == op::_to_copy && graph.attrs(node).list.size() == 1 &&
         DTypeOf(graph, graph.operands(node)[0]) == from &&
         DTypeOf(graph, graph[node].first_result) == to &&
         LanesOf(graph, graph[node].first_result) > 0;
}

}  // namespace

int64_t RowWidth(const Graph& graph, NodeId norm) {
  const AttrValue* shape = graph.attrs(norm).Find("normalized_shape");
  const auto* dims = shape == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(shape);
  return dims != nullptr && dims->size() == 1 ? dims->front() : 0;
}

bool IsRowNorm(const Graph& graph, NodeId node) {
  bool forward = graph[node].op == op::_fused_rms_norm;
  if (!forward && graph[node].op != op::_fused_rms_norm_backward) return false;
  // Operands: (input, weight); (grad_out, input, rstd, weight).
  std::span<const ValueId> operands = graph.operands(node);
  if (operands.size() != (forward ? 2 : 4) || std::ranges::count(operands, ValueId()) > 0)
    return false;
  int64_t width = RowWidth(graph, node);
  // A row's values must fit into registers.
  if (IsSymbol(width) || width % 4 != 0 || width <= 0 || width > (forward ? 8192 : 4096))
    return false;
  for (size_t i = 0; i < operands.size(); ++i) {
    bool is_rstd = !forward && i == 2;
    if (LanesOf(graph, operands[i]) == 0) return false;
    DType expected = is_rstd ? DType::kF32 : DTypeOf(graph, operands[0]);
    if (DTypeOf(graph, operands[i]) != expected) return false;
  }
  if (forward) return std::get_if<double>(graph.attrs(node).Find("eps")) != nullptr;
  const AttrValue* mask = graph.attrs(node).Find("output_mask");
  const auto* both = mask == nullptr ? nullptr : std::get_if<std::vector<bool>>(mask);
  return both != nullptr && *both == std::vector<bool>{true, true};
}

std::vector<KernelGroup> GroupFinder::Find() {
  std::vector<KernelGroup> groups;
  units_.resize(graph_.node_count());
  inside_.resize(graph_.node_count());
  visited_.resize(graph_.node_count());
  for (NodeId node : graph_.nodes()) {
    uint32_t index = node.index();
    unit_of_.push_back(index);
    Unit& unit = units_[index];
    int64_t lanes = 0;
    if (segment_[index] != 0) {
      ValueId result = graph_[node].first_result;
      if (IsRowNorm(graph_, node)) {
        lanes = LanesOf(graph_, result);
        unit.norm = node;
      } else if (ElementText(graph_, node)) {
        lanes = LanesOf(graph_, result);
      }
    }
    lanes_.push_back(lanes);
    if (lanes == 0) continue;
    unit.nodes.push_back(node);
    unit.lanes = lanes;
    unit.computed = 1;
  }
  FindTurns();
  GroupCasts(groups);
  for (NodeId node : graph_.nodes()) {
    if (IsComputed(node)) Join(node);
  }
  for (NodeId node : graph_.nodes()) {
    const Unit& unit = units_[node.index()];
    if (unit_of_[node.index()] != node.index() || (unit.computed < 2 && !unit.norm) ||
        (unit.turns && !unit.norm))
      continue;
    KernelGroup group{unit.norm ? KernelGroup::Form::kRows : KernelGroup::Form::kElements,
                      unit.nodes,
                      {},
                      unit.norm};
    std::ranges::sort(group.nodes);
    Repeat(group);
    groups.push_back(std::move(group));
  }
  return groups;
}

// The slices and negations of a turn belong to its unit, unless other nodes read them.
void GroupFinder::FindTurns() {
  for (NodeId node : graph_.nodes()) {
    std::optional<HalfTurn> turn = HalfTurnOf(graph_, node);
    if (!turn || segment_[node.index()] == 0) continue;
    bool own = std::ranges::all_of(turn->parts, [&](NodeId part) {
      ValueId result = graph_[part].first_result;
      return segment_[part.index()] == segment_[node.index()] && uses_.of(result).size() == 1 &&
             !uses_.is_output(result);
    });
    if (!own) continue;
    Unit& unit = units_[node.index()];
    unit.nodes.assign(1, node);
    for (NodeId part : turn->parts) {
      lanes_[part.index()] = 0;
      unit_of_[part.index()] = node.index();
      unit.nodes.push_back(part);
    }
    lanes_[node.index()] = unit.lanes = LanesOf(graph_, graph_[node].first_result);
    unit.computed = 1;
    unit.turns = true;
    turns_.emplace(node, *std::move(turn));
  }
}

std::vector<ValueId> GroupFinder::OperandsOf(NodeId node) const {
  auto turn = turns_.find(node);
  if (turn != turns_.end()) return {turn->second.source};
  std::span<const ValueId> operands = graph_.operands(node);
  return {operands.begin(), operands.end()};
}

// A weight that backward also reads exists until then, wherever its cast is. Gradients are cast
// when the last one is known, because they take less memory before the cast.
void GroupFinder::GroupCasts(std::vector<KernelGroup>& groups) {
  auto used_in_backward = [&](ValueId value) {
    std::vector<ValueId> open = {value};
    while (!open.empty()) {
      ValueId v = open.back();
      open.pop_back();
      for (const Use& use : uses_.of(v)) {
        if (graph_[use.node].phase != Phase::kForward) return true;
        if (graph_.op(use.node).effect() == Effect::kView)
          open.push_back(graph_[use.node].first_result);
      }
    }
    return false;
  };
  std::vector<NodeId> weights;
  std::vector<NodeId> gradients;
  for (NodeId node : graph_.nodes()) {
    if (segment_[node.index()] == 0) continue;
    ValueId result = graph_[node].first_result;
    if (IsCast(graph_, node, DType::kF32, DType::kBF16) && graph_[node].phase == Phase::kForward &&
        !graph_[graph_.operands(node)[0]].producer && used_in_backward(result))
      weights.push_back(node);
    bool for_optimizer = IsCast(graph_, node, DType::kBF16, DType::kF32) &&
                         graph_[node].phase == Phase::kBackward &&
                         std::ranges::all_of(uses_.of(result), [&](const Use& use) {
                           return graph_[use.node].phase == Phase::kOptimizer;
                         });
    if (for_optimizer) gradients.push_back(node);
  }
  for (const std::vector<NodeId>& casts : {weights, gradients}) {
    std::map<uint32_t, std::vector<NodeId>> by_segment;
    for (NodeId node : casts) by_segment[segment_[node.index()]].push_back(node);
    for (auto& [segment, nodes] : by_segment) {
      if (nodes.size() < 2) continue;
      for (NodeId node : nodes) lanes_[node.index()] = 0;
      groups.push_back({KernelGroup::Form::kCasts, std::move(nodes)});
    }
  }
}

// Joins the node with the units of its operands' producers, and with other readers of its operands.
void GroupFinder::Join(NodeId node) {
  auto near = [&](NodeId other) {
    return other < node && node.index() - other.index() <= kWindow && IsComputed(other) &&
           segment_[other.index()] == segment_[node.index()];
  };
  std::vector<NodeId> others;
  for (ValueId operand : OperandsOf(node)) {
    if (!operand || LanesOf(graph_, operand) != lanes_[node.index()]) continue;
    ValueId source = SourceOf(graph_, operand);
    NodeId producer = graph_[source].producer;
    if (producer && near(producer)) others.push_back(producer);
    // All readers of the source, also through views.
    std::vector<ValueId> open = {source};
    while (!open.empty()) {
      ValueId value = open.back();
      open.pop_back();
      for (const Use& use : uses_.of(value)) {
        NodeId unit(unit_of_[use.node.index()]);
        if (IsFlatView(graph_, use.node)) {
          open.push_back(graph_[use.node].first_result);
        } else if (near(use.node)) {
          others.push_back(use.node);
        } else if (turns_.contains(unit) && near(unit)) {
          // A part of a turn.
          others.push_back(unit);
        }
      }
    }
  }
  // A pair of units that does not merge does not merge later, either, while both are the same.
  std::vector<std::pair<uint32_t, uint32_t>> apart;
  for (NodeId other : others) {
    std::pair pair(unit_of_[other.index()], unit_of_[node.index()]);
    if (std::ranges::find(apart, pair) != apart.end()) continue;
    if (Merge(pair.first, pair.second))
      apart.clear();
    else
      apart.push_back(pair);
  }
}

bool GroupFinder::Merge(uint32_t a, uint32_t b) {
  const Unit& first = units_[a];
  const Unit& second = units_[b];
  if (a == b || first.lanes != second.lanes || (first.norm && second.norm) ||
      first.nodes.size() + second.nodes.size() > kMostNodes)
    return false;
  NodeId norm = first.norm ? first.norm : second.norm;
  bool turns = first.turns || second.turns;
  if (turns && norm && RowWidth(graph_, norm) != kTurnWidth) return false;
  Unit merged{first.nodes, first.lanes, norm, first.computed + second.computed, turns};
  merged.nodes.insert(merged.nodes.end(), second.nodes.begin(), second.nodes.end());
  MarkInside(merged);
  AddViews(merged, a, b);
  if (merged.nodes.size() > kMostNodes || InputCount(merged) > kMostInputs || MakesCycle(merged))
    return false;
  uint32_t id = merged.nodes.front().index();
  for (NodeId node : merged.nodes) unit_of_[node.index()] = id;
  units_[id] = std::move(merged);
  return true;
}

void GroupFinder::MarkInside(const Unit& unit) {
  ++merge_;
  for (NodeId node : unit.nodes) inside_[node.index()] = merge_;
}

void GroupFinder::AddViews(Unit& unit, uint32_t a, uint32_t b) {
  const size_t computed = unit.nodes.size();
  for (size_t i = 0; i < computed; ++i) {
    for (ValueId operand : graph_.operands(unit.nodes[i])) {
      if (!operand) continue;
      NodeId made_by = graph_[SourceOf(graph_, operand)].producer;
      if (!made_by || !IsInside(made_by)) continue;
      for (NodeId view = graph_[operand].producer; view && IsFlatView(graph_, view);
           view = graph_[graph_.operands(view)[0]].producer) {
        uint32_t in = unit_of_[view.index()];
        if (in == a || in == b || IsInside(view)) continue;
        inside_[view.index()] = merge_;
        unit.nodes.push_back(view);
      }
    }
  }
}

bool GroupFinder::MakesCycle(const Unit& unit) {
  open_ = unit.nodes;
  uint32_t segment = segment_[unit.nodes.front().index()];
  auto visit = [&](NodeId node) {
    if (std::exchange(visited_[node.index()], merge_) != merge_) open_.push_back(node);
  };
  while (!open_.empty()) {
    NodeId node = open_.back();
    open_.pop_back();
    bool own = IsInside(node);
    for (ValueId result : graph_.results(node)) {
      for (const Use& use : uses_.of(result)) {
        if (IsInside(use.node)) {
          if (!own) return true;
          continue;
        }
        // Paths from later segments do not return.
        if (segment_[use.node.index()] != segment) continue;
        const Unit& reader = units_[unit_of_[use.node.index()]];
        if (reader.nodes.empty()) visit(use.node);
        for (NodeId member : reader.nodes) visit(member);
      }
    }
  }
  return false;
}

size_t GroupFinder::InputCount(const Unit& unit) {
  inputs_.clear();
  for (NodeId node : unit.nodes) {
    for (ValueId operand : graph_.operands(node)) {
      if (!operand) continue;
      ValueId source = SourceOf(graph_, operand);
      NodeId producer = graph_[source].producer;
      bool inside = producer && IsInside(producer);
      if (!inside && std::ranges::find(inputs_, source) == inputs_.end()) inputs_.push_back(source);
    }
  }
  return inputs_.size();
}

void GroupFinder::Repeat(KernelGroup& group) const {
  std::set<NodeId> inside(group.nodes.begin(), group.nodes.end());
  std::set<ValueId> inputs;
  std::set<NodeId> candidates;
  for (NodeId node : group.nodes) {
    for (ValueId operand : graph_.operands(node)) {
      if (!operand) continue;
      ValueId source = SourceOf(graph_, operand);
      NodeId producer = graph_[source].producer;
      if (producer && inside.contains(producer)) continue;
      inputs.insert(operand);
      // Its own views need the result, which would not exist.
      if (producer && source == operand && ElementText(graph_, producer) &&
          LanesOf(graph_, source) == lanes_[group.nodes.front().index()])
        candidates.insert(producer);
    }
  }
  for (NodeId node : candidates) {
    // Another view of the same operand may exist only in registers of its group.
    bool known = std::ranges::all_of(graph_.operands(node), [&](ValueId operand) {
      NodeId producer = graph_[SourceOf(graph_, operand)].producer;
      return inputs.contains(operand) && !candidates.contains(producer) &&
             LanesOf(graph_, operand) == LanesOf(graph_, graph_[node].first_result);
    });
    if (known) group.repeated.push_back(node);
  }
}

}  // namespace heddle
