// FindPlan: completes a plan. The solver and simulations find placements for `auto`; MemorySearch
// finds the values that backward recomputes for a budget. Compile applies the result.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/compile/compile.h"
#include "heddle/search/find_placements.h"
#include "heddle/search/memory/choice.h"
#include "heddle/search/memory/memory_decisions.h"

namespace heddle::search {

// A plan with all decisions of the user, and compile options.
struct CompileJob {
  compile::Plan plan;
  compile::CompileOptions options;
};

// Returns the costs of the cluster of a plan, or of the default cluster.
Result<price::CostModel> CostsFor(const compile::Plan& plan);

struct FoundPlan {
  // The complete plan. Compiled with the same options, it gives the graph that was found.
  compile::Plan plan;
  // The placements for `auto`.
  std::optional<FoundPlacements> placements = {};
  // The memory choice for the budget, and its decisions by module and op.
  std::optional<MemoryChoice> memory = {};
  std::vector<DecisionLine> decisions = {};
};

// `module` is captured. Fails with Diag::kInfeasible if nothing fits into the plan's budget.
Result<FoundPlan> FindPlan(const Module& module, const compile::Plan& plan,
                           const PlanRequest& request, const compile::CompileOptions& options);

}  // namespace heddle::search
