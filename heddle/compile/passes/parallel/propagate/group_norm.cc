#include "heddle/compile/passes/parallel/propagate/group_norm.h"

#include <algorithm>
#include <set>

#include "heddle/compile/passes/parallel/redistribute/redistributor.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

struct Group {
  std::set<AxisId> axes;
  std::vector<ValueId> members;
  // Positions among all operands.
  std::vector<int64_t> places;
};

// Groups in the order of their first members.
std::vector<Group> GroupsOf(const Graph& graph, NodeId node,
                            const std::function<PlacementId(ValueId)>& placement_of) {
  std::vector<Group> groups;
  for (size_t i = 0; i < graph.operands(node).size(); ++i) {
    ValueId v = graph.operands(node)[i];
    const Placement& placement = graph.placements()[placement_of(v)];
    // If any sum is pending, all gradients are reduced first.
    if (!placement.partials.empty()) return {};
    std::set<AxisId> axes;
    for (const Axes& split : placement.splits) axes.insert(split.begin(), split.end());
    auto at = std::ranges::find(groups, axes, &Group::axes);
    if (at == groups.end()) at = groups.insert(at, {axes, {}, {}});
    at->members.push_back(v);
    at->places.push_back(static_cast<int64_t>(i));
  }
  return groups;
}

}  // namespace

std::vector<NodeId> GroupNorm(Graph& graph, Rewriter& rewriter, NodeId node,
                              const std::function<PlacementId(ValueId)>& placement_of) {
  std::vector<Group> groups = GroupsOf(graph, node, placement_of);
  if (groups.size() < 2) return {};
  Redistributor inserter(graph, rewriter);
  std::vector<NodeId> made;
  auto pending = [&](const std::set<AxisId>& axes) {
    Placement placement;
    for (AxisId axis : axes) placement.partials.push_back({axis, ReduceOp::kSum});
    return graph.placements().Intern(std::move(placement));
  };
  auto note = [&](ValueId v) {
    made.push_back(graph[v].producer);
    return v;
  };
  std::set<AxisId> all;
  for (const Group& group : groups) all.insert(group.axes.begin(), group.axes.end());
  TypeId type = graph.type(graph[node].first_result);
  std::vector<ValueId> sums;
  for (const Group& group : groups) {
    Attrs attrs;
    attrs.list_sizes = {static_cast<uint32_t>(group.members.size())};
    attrs.Set("places", group.places);
    attrs.Set("count", static_cast<int64_t>(graph.operands(node).size()));
    ValueId sum = note(inserter.Add(Inserter::Before(node), op::heddle_squared_norm, "squares",
                                    group.members, attrs, type, pending(group.axes)));
    if (group.axes != all)
      sum = note(
          inserter.Redistribute(Inserter::Before(node), sum, pending(all), {.why = Why::kNorm}));
    sums.push_back(sum);
  }
  while (sums.size() > 2) {
    ValueId sum = note(inserter.Add(Inserter::Before(node), op::add_Tensor, "squares",
                                    {sums[0], sums[1]}, {}, type, pending(all)));
    sums.erase(sums.begin());
    sums[0] = sum;
  }
  rewriter.SetOp(node, op::add_Tensor, AttrsTable::kEmpty);
  rewriter.SetOperands(node, sums, AttrsTable::kEmpty);
  return made;
}

}  // namespace heddle::compile
