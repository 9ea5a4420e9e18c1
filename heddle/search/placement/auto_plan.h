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

#include <memory>
#include <optional>

#include "heddle/compile/plan/plan.h"
#include "heddle/core/ir/graph.h"
#include "heddle/price/cost/cost_model.h"
#include "heddle/search/placement/auto_problem.h"
#include "heddle/search/placement/placement_decisions.h"
#include "heddle/search/solve/solve.h"

namespace heddle::search {

struct AutoOptions {
  // None: all there is.
  std::optional<MemoryLimit> memory;
  // For all of it.
  Allowance allowance = Allowance::Work(10);
};

struct AutoPlan {
  compile::Plan plan;
  // The choice of each decision.
  std::vector<uint32_t> x;
  // What a step costs, kernels and collectives added up in full.
  Nanos cost;
  // What was made small: the same with the shares of moves that were asked for; and what every plan comes to at least. Equal where it is
  // proved.
  Nanos objective;
  Nanos bound;
  price::MoveShares shares;
  ProblemSize size;
  SearchCounts counts;
  // Bytes of a rank that count against the limit, if there is one.
  Bytes memory;
};

// Decisions and their prices, found once; plans for other shares of moves, other limits and other demands follow in a moment.
class AutoPlanner {
 public:
  // `module` is captured: global, one graph, without placements. All outlive this. `limit` is for all that follows, too.
  static Result<AutoPlanner> Make(const Module& module, const compile::Plan& plan,
                                  const price::CostModel& model, const Limit& limit);
  AutoPlanner(AutoPlanner&&) noexcept;
  ~AutoPlanner();

  struct Request {
    price::MoveShares shares = {};
    std::optional<MemoryLimit> memory = {};
    // Of decisions.
    std::vector<PairwiseRestriction> demands = {};
  };
  // Fails with Diag::kInfeasible if no plan does all that is asked for, and with Diag::kNoAnswer if none was found before the limit was spent.
  Result<AutoPlan> Find(const Request& request);
  // The same without the plan as text, which takes longer than the rest.
  Result<AutoPlan> Solve(const Request& request);

  // For a request that is infeasible: what of it conflicts.
  Failure WhyNot(const Request& request);

  const Decisions& decisions() const;
  // With all moves in full; and what was solved last.
  const PairwiseProblem& problem() const;
  const PairwiseProblem& last_problem() const;

 private:
  struct State;
  explicit AutoPlanner(std::unique_ptr<State> state);
  const ChoiceSets* ChoicesFor(const Request& request) const;
  Result<const PairwiseProblem*> ProblemFor(const Request& request);
  // With numbers of all choices.
  PairwiseAnswer Answer(const Request& request, const PairwiseProblem& problem);

  std::unique_ptr<State> state_;
};

// Makes a planner and finds the plan. Where none is possible, says which lines of the plan and which limit conflict.
Result<AutoPlan> CompletePlan(const Module& module, const compile::Plan& plan,
                              const price::CostModel& model, const AutoOptions& options);

// The plan that an assignment of choices to all decisions stands for.
Result<compile::Plan> PlanOf(const Module& module, const compile::Plan& given,
                             const Decisions& decisions, const std::vector<uint32_t>& x);

}  // namespace heddle::search
