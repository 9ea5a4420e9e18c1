// The plan that costs the least: what a plan leaves open is found by the solver.
//
//   heddle plan 1
//   mesh [dp=4, tp=2]
//   input "*" [dp]
//   auto
//
// Statements of the user hold; `auto` fills in the rest: how parameters are kept and read, how the batch lies, and how single nodes are
// split where that does not follow from the rest. What comes out is a plan as any other, without `auto`.
#pragma once

#include <optional>

#include "heddle/auto/decisions.h"
#include "heddle/cost/cost_model.h"
#include "heddle/ir/graph.h"
#include "heddle/plan/plan.h"
#include "heddle/solve/solve.h"

namespace heddle {

struct AutoOptions {
  // What a rank has for parameters, gradients, optimizer state and saved activations. None: all there is.
  std::optional<Bytes> memory;
  // In seconds, for all of it.
  double time_limit = 10;
};

struct AutoPlan {
  Plan plan;
  // What a step costs, kernels and collectives added up, and what every plan costs at least; equal where it is proved.
  Nanos cost;
  Nanos bound;
  ProblemSize size;
  SearchCounts counts;
  // Bytes of a rank that count against the budget, if there is one.
  Bytes memory;
};

// `module` is captured: global, one graph, without placements. Fails with Diag::kInfeasible if no plan fits into memory, and with
// Diag::kNoAnswer if none was found in time.
Result<AutoPlan> CompletePlan(const Module& module, const Plan& plan, const CostModel& model,
                              const AutoOptions& options);

// The plan that an assignment of choices to all decisions stands for.
Result<Plan> PlanOf(const Module& module, const Plan& given, const Decisions& decisions,
                    const std::vector<uint32_t>& x);

}  // namespace heddle
