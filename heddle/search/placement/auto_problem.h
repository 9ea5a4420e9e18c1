// The decisions about a graph as a pairwise problem: what every choice costs, and every pair of them.
#pragma once

#include <memory>

#include "heddle/price/cost/cost_model.h"
#include "heddle/price/cost/move_shares.h"
#include "heddle/search/placement/memory_row.h"
#include "heddle/search/placement/placement_decisions.h"
#include "heddle/search/placement/price_sheet.h"
#include "heddle/search/solve/problem/problem.h"

namespace heddle::search {

// All prices of one graph on one mesh, asked for once. Problems with other shares and limits follow from them.
class ProblemMaker;
class PricedDecisions {
 public:
  // Everything outlives this. Fails where the problem would be too large, or takes more than the limit to price.
  static Result<PricedDecisions> Make(const Graph& graph, const compile::Plan& plan,
                                      const Decisions& decisions, const price::CostModel& model,
                                      const Limit& limit = {});
  PricedDecisions(PricedDecisions&&) noexcept;
  ~PricedDecisions();

  // A variable for each decision, under its number, with these choices of it, or all. Costs are whole nanoseconds.
  Result<PairwiseProblem> Problem(const price::MoveShares& shares,
                                  const ChoiceSets* choices = nullptr);
  // A row that bounds the bytes of one rank.
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
