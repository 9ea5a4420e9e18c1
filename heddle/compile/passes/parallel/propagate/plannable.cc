#include "heddle/compile/passes/parallel/propagate/plannable.h"

#include <map>
#include <string_view>

#include "heddle/compile/plan/patterns.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

// A graph that was planned before would be divided and redistributed again.
Status CheckUnplaced(const Graph& graph) {
  for (NodeId node : graph.nodes()) {
    if (graph[node].op != op::shard_redistribute) continue;
    return Error(
        Diag::kPlan,
        "@{} already has redistributions, such as `%{}`; apply the plan to the captured graph",
        graph.name(), graph.name(graph[node].first_result));
  }
  for (ValueId v : graph.values()) {
    if (graph[v].placement == PlacementTable::kReplicated) continue;
    return Error(
        Diag::kPlan,
        "@{} already has placements, such as that of `%{}`; apply the plan to the captured graph",
        graph.name(), graph.name(v));
  }
  return Done{};
}

// A value that one graph saves for another must have one placement.
Status CheckJoined(const Module& module) {
  std::map<std::string_view, const Graph*> savers;
  for (const Graph& graph : module.graphs) {
    for (const Output& output : graph.outputs()) {
      if (output.role == OutputRole::kSaved) savers.emplace(output.label, &graph);
    }
  }
  for (const Graph& graph : module.graphs) {
    for (const Input& input : graph.inputs()) {
      auto saver = savers.find(input.label);
      if (input.role != InputRole::kSaved || saver == savers.end()) continue;
      return Error(Diag::kPlan,
                   "`@{}` reads `%{}`, which `@{}` saves; a plan needs the joint graph: run `join` "
                   "before it, and `partition` after it",
                   graph.name(), graph.name(input.value), saver->second->name());
    }
  }
  return Done{};
}

}  // namespace

Status CheckPlannable(const Module& module, const Plan& plan) {
  if (module.view != View::kGlobal)
    return Error(Diag::kPassView, "a plan needs a global module, this one is {}",
                 Name(module.view));
  if (!module.mesh.empty() && module.mesh != plan.mesh)
    return Error(Diag::kPlan, "the graph is on mesh [{}], the plan on [{}]", Format(module.mesh),
                 Format(plan.mesh));
  for (const Graph& graph : module.graphs) HEDDLE_RETURN_IF_ERROR(CheckUnplaced(graph));
  HEDDLE_RETURN_IF_ERROR(CheckJoined(module));
  return CheckPatterns(module, plan);
}

}  // namespace heddle::compile
