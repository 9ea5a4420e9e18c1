#include "heddle/compile/passes/pipeline/finish_coordinate.h"

#include <algorithm>

#include "heddle/core/analysis/launch.h"
#include "heddle/core/analysis/weights.h"
#include "heddle/core/ir/edit/rewriter.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

// Other passes bucket the collectives of a unit, and merge equal gathers.
void NameGroups(const std::vector<GroupNode>& nodes, Graph& graph, Rewriter& rewriter) {
  for (const GroupNode& each : nodes) {
    rewriter.SetPhase(each.node, each.phase);
    if (!IsLaunch(graph, each.node)) continue;
    std::string unit(UnitOf(graph, each.node, 0));
    if (unit.empty()) unit = fmt::format("%{}", graph.name(graph[each.node].first_result));
    Attrs attrs = graph.attrs(each.node);
    attrs.Set("unit", fmt::format("{}#{}", unit, each.group));
    rewriter.SetAttrs(each.node, graph.InternAttrs(attrs));
  }
}

// A transfer begins when both ends are launched. Moves each receive to the beginning of the
// previous action, which then overlaps the transfer.
void LaunchReceivesEarly(const std::vector<NodeId>& begins, const Graph& graph,
                         Rewriter& rewriter) {
  // By action: the receives that it launches. The first nodes are before all actions.
  std::vector<std::vector<NodeId>> launched(begins.size());
  auto action_of = [&](NodeId id) {
    return static_cast<size_t>(std::ranges::upper_bound(begins, id) - begins.begin());
  };
  auto moves = [&](NodeId id) {
    return graph[id].op == op::comm_recv && action_of(id) > 0 && id < begins.back();
  };
  for (NodeId id : graph.nodes()) {
    if (moves(id)) launched[std::max<size_t>(action_of(id), 2) - 2].push_back(id);
  }
  std::vector<NodeId> order;
  size_t next = 0;
  for (NodeId id : graph.nodes()) {
    for (; next < begins.size() && begins[next] <= id; ++next)
      order.insert(order.end(), launched[next].begin(), launched[next].end());
    if (!moves(id)) order.push_back(id);
  }
  rewriter.Reorder(order);
}

}  // namespace

void FinishCoordinate(const CoordinateParts& parts, Graph& graph) {
  Rewriter rewriter(graph);
  NameGroups(parts.group_nodes, graph, rewriter);
  LaunchReceivesEarly(parts.begins, graph, rewriter);
  rewriter.Commit();
}

}  // namespace heddle::compile
