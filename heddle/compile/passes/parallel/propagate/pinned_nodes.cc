#include "heddle/compile/passes/parallel/propagate/pinned_nodes.h"

#include "heddle/compile/passes/parallel/propagate/plan_inputs.h"
#include "heddle/compile/plan/patterns.h"
#include "heddle/core/base/text.h"

namespace heddle::compile {
namespace {

// Placements for tensors with these numbers of dimensions.
Result<std::vector<Placement>> Fitting(const std::vector<BoundaryPlacement>& given,
                                       const std::vector<size_t>& ranks, const Plan& plan,
                                       const PlanNode& rule, std::string_view what) {
  if (given.size() != ranks.size())
    return Error(Diag::kPlan, "line {} of the plan: {} placements, {} has {}", rule.line,
                 given.size(), rule.op, Counted(ranks.size(), what));
  std::vector<Placement> out;
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].rank != ranks[i])
      return Error(Diag::kPlan, "line {} of the plan: {} {} of {} has {}, the placement {}",
                   rule.line, what, i, rule.op, Counted(ranks[i], "dimension"), given[i].rank);
    out.push_back(OnMesh(given[i].placement, plan.mesh));
  }
  return out;
}

}  // namespace

Result<std::map<NodeId, PinnedNode>> FindPinnedNodes(const Graph& graph, const Plan& plan) {
  std::map<NodeId, PinnedNode> out;
  if (plan.nodes.empty()) return out;
  std::vector<uint32_t> numbers = NodeNumbers(graph);
  auto rank = [&](ValueId v) { return v ? graph.types().rank(graph.type(v)) : size_t{0}; };
  for (const PlanNode& rule : plan.nodes) {
    for (NodeId node : NodesOf(rule, graph, numbers)) {
      std::vector<size_t> operands;
      std::vector<size_t> results;
      for (ValueId v : graph.operands(node)) operands.push_back(rank(v));
      for (ValueId v : graph.results(node)) results.push_back(rank(v));
      PinnedNode pinned{{}, rule.line};
      HEDDLE_TRY(pinned.split.operands, Fitting(rule.operands, operands, plan, rule, "operand"));
      HEDDLE_TRY(pinned.split.results, Fitting(rule.results, results, plan, rule, "result"));
      auto [at, added] = out.try_emplace(node, pinned);
      if (!added && at->second.split != pinned.split)
        return Error(Diag::kPlan, "lines {} and {} of the plan split `%{}` differently",
                     at->second.line, rule.line, graph.name(graph[node].first_result));
    }
  }
  return out;
}

}  // namespace heddle::compile
