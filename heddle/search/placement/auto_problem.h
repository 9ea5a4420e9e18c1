// Converts the decisions about a graph to a pairwise problem: the costs of all choices and pairs of
// choices.
#pragma once

#include <memory>

#include "heddle/price/cost/cost_model.h"
#include "heddle/price/cost/move_shares.h"
#include "heddle/search/placement/memory_row.h"
#include "heddle/search/placement/placement_decisions.h"
#include "heddle/search/placement/price_sheet.h"
#include "heddle/search/solve/problem/problem.h"

namespace heddle::search {

// The prices of one graph on one mesh, computed once. They serve problems with any shares and
// limits.
class ProblemMaker;
class PricedDecisions {
 public:
  // All arguments must outlive this object. Fails if the problem is too large, or if pricing
  // exceeds the limit.
  static Result<PricedDecisions> Make(const Graph& graph, const compile::Plan& plan,
                                      const Decisions& decisions, const price::CostModel& model,
                                      const Limit& limit = {});
  PricedDecisions(PricedDecisions&&) noexcept;
  ~PricedDecisions();

  // Returns a problem with a variable for each decision, by index, with these choices, or all.
  // Costs are whole nanoseconds.
  Result<PairwiseProblem> Problem(const price::MoveShares& shares,
                                  const ChoiceSets* choices = nullptr);
  // Returns a budget row for the bytes of one rank.
  PairwiseBudget Memory(const MemoryLimit& limit) const;

 private:
  PricedDecisions(const Graph& graph, const compile::Plan& plan, const Decisions& decisions,
                  std::unique_ptr<ProblemMaker> maker);

  const Graph* graph_;
  const compile::Plan* plan_;
  const Decisions* decisions_;
  std::unique_ptr<ProblemMaker> maker_;
};

}  // namespace heddle::search
