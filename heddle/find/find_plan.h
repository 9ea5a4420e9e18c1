// FindPlan: completes a plan. What the plan leaves to `auto` is found by the solver and by simulation;
// what backward recomputes under a budget is found by MemorySearch. Compile carries the result out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/budget/choice.h"
#include "heddle/budget/decisions.h"
#include "heddle/compile/compile.h"
#include "heddle/find/find_placements.h"

namespace heddle {

// A plan with all that a user decides, and how it is compiled.
struct CompileJob {
  Plan plan;
  CompileOptions options;
};

// The costs of the cluster that a plan states, or of the default cluster.
Result<CostModel> CostsFor(const Plan& plan);

struct FoundPlan {
  // Complete: compiled with the same options it gives the graph that was found.
  Plan plan;
  // What `auto` found.
  std::optional<FoundPlacements> placements = {};
  // What fits into the budget, and what it decides.
  std::optional<MemoryChoice> memory = {};
  std::vector<DecisionLine> decisions = {};
};

// `module` is captured. Fails with Diag::kInfeasible if nothing fits into the plan's budget.
Result<FoundPlan> FindPlan(const Module& module, const Plan& plan, const PlanRequest& request,
                           const CompileOptions& options);

}  // namespace heddle
