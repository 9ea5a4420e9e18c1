// Finds the cheapest plan: the solver decides what a plan leaves open.
//
//   heddle plan 1
//   mesh [dp=4, tp=2]
//   input "*" [dp]
//   auto
//
// Statements of the user hold. `auto` decides the rest: the placements of parameters in storage and
// in compute, of the batch, and of single nodes where they do not follow from other statements. The
// result is an ordinary plan without `auto`.
#pragma once

#include <memory>
#include <optional>

#include "heddle/compile/plan/plan.h"
#include "heddle/core/ir/graph.h"
#include "heddle/price/cost/cost_model.h"
#include "heddle/search/placement/placement_decisions.h"
#include "heddle/search/placement/placement_problem.h"
#include "heddle/search/solve/solve.h"

namespace heddle::search {

struct AutoOptions {
  // Unset: unlimited.
  std::optional<MemoryLimit> memory;
  // Work limit of the whole search.
  WorkAmount work = WorkAmount::Work(10);
};

struct AutoPlan {
  compile::Plan plan;
  // The choice of each decision.
  std::vector<uint32_t> x;
  // Cost of a step: the sum of kernels and collectives at full prices.
  Nanos cost;
  // The objective: the same with the requested shares of moves. And its lower bound; equal if
  // proven optimal.
  Nanos objective;
  Nanos bound;
  price::MoveShares shares;
  ProblemSize size;
  SearchCounts counts;
  // Bytes per rank that count against the memory limit.
  Bytes memory;
};

// Decisions and their prices, computed once. Solving for other shares, limits and restrictions is
// then fast.
class AutoPlanner {
 public:
  // `module` is captured: global, with one graph and without placements. All arguments must outlive
  // this object. `limit` also applies to later solves.
  static Result<AutoPlanner> Make(const Module& module, const compile::Plan& plan,
                                  const price::CostModel& model, const WorkLimit& limit);
  AutoPlanner(AutoPlanner&&) noexcept;
  ~AutoPlanner();

  struct Request {
    price::MoveShares shares = {};
    std::optional<MemoryLimit> memory = {};
    // Restrictions of decisions.
    std::vector<PairwiseRestriction> demands = {};
  };
  // Returns the cheapest plan. Fails with Diag::kInfeasible if no plan satisfies the request, and
  // with Diag::kNoAnswer if none was found within the limit.
  Result<AutoPlan> Find(const Request& request);
  // The same without the plan as text, which takes longer than the rest.
  Result<AutoPlan> Solve(const Request& request);

  // For an infeasible request: returns the parts that conflict.
  Failure WhyNot(const Request& request);

  const Decisions& decisions() const;
  // The problem at full prices, and the problem that was solved last.
  const PairwiseProblem& problem() const;
  const PairwiseProblem& last_problem() const;

 private:
  struct State;
  explicit AutoPlanner(std::unique_ptr<State> state);
  const ChoiceSets* ChoicesFor(const Request& request) const;
  Result<const PairwiseProblem*> ProblemFor(const Request& request);
  // The answer uses indices of all choices.
  PairwiseAnswer Answer(const Request& request, const PairwiseProblem& problem);

  std::unique_ptr<State> state_;
};

// Makes a planner and finds the plan. If infeasible, the error names the lines of the plan and the
// limit that conflict.
Result<AutoPlan> CompletePlan(const Module& module, const compile::Plan& plan,
                              const price::CostModel& model, const AutoOptions& options);

// Returns the plan for an assignment of choices to all decisions.
Result<compile::Plan> PlanOf(const Module& module, const compile::Plan& given,
                             const Decisions& decisions, const std::vector<uint32_t>& x);

}  // namespace heddle::search
