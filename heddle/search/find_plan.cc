#include "heddle/search/find_plan.h"

#include "heddle/compile/passes/memory/policy.h"
#include "heddle/compile/plan/marks.h"
#include "heddle/search/memory/memory_search.h"

namespace heddle::search {
namespace {

// The search used this pipeline and this cluster, so the plan must state them.
void StatePipeline(const PlanRequest& request, const compile::CompileOptions& options,
                   compile::PlanDecisions& decisions) {
  if (!decisions.pipeline) decisions.pipeline = options.pipeline;
  if (!decisions.cluster) decisions.cluster = request.cluster;
}

// Decides what backward recomputes, so that the step fits into the budget of the plan.
Status FindMemory(const Module& captured, const PlanRequest& request,
                  const compile::CompileOptions& options, FoundPlan& found) {
  compile::PlanDecisions& decisions = found.plan.decisions;
  HEDDLE_TRY(auto lowered, LoweredStep::Make(captured, found.plan, options));
  HEDDLE_TRY(auto search, lowered.Search(request.offloads));
  HEDDLE_TRY(found.memory, search->FindWithin(*decisions.budget));
  HEDDLE_TRY(found.decisions, ListDecisions(search->trials(), found.memory->marks));
  StatePipeline(request, options, decisions);
  // The plan states a policy by its name, and other choices node by node.
  if (compile::CheckpointPolicy::Parse(found.memory->policy).ok())
    decisions.checkpoint = found.memory->policy;
  else
    decisions.marks = compile::StatementsOf(lowered.module.graphs[0], found.memory->marks);
  return Done{};
}

}  // namespace

Result<price::CostModel> CostsFor(const compile::Plan& plan) {
  HEDDLE_TRY(price::Cluster cluster,
             price::LoadCluster(plan.decisions.cluster.value_or(PlanRequest().cluster)));
  return price::CostModel::Make(std::move(cluster), {});
}

Result<FoundPlan> FindPlan(const Module& module, const compile::Plan& plan,
                           const PlanRequest& request, const compile::CompileOptions& options) {
  FoundPlan found{plan};
  compile::PlanDecisions& decisions = found.plan.decisions;
  if (plan.automatic) {
    HEDDLE_TRY(found.placements, FindPlacements(module, plan, request, options));
    found.plan = found.placements->plan;
    decisions = plan.decisions;
    if (found.placements->budget) decisions.budget = found.placements->budget;
    if (request.tries_plans) StatePipeline(request, options, decisions);
  }
  if (decisions.budget && !decisions.decides_memory() && compile::HasBackward(module))
    HEDDLE_RETURN_IF_ERROR(FindMemory(module, request, options, found));
  return found;
}

}  // namespace heddle::search
