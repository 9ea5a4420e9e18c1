// Converts the decisions about a graph to a pairwise problem: the costs of all choices and pairs of
// choices.
#pragma once

#include <memory>

#include "heddle/price/cost/cost_model.h"
#include "heddle/price/cost/move_shares.h"
#include "heddle/search/placement/cost_table.h"
#include "heddle/search/placement/memory_row.h"
#include "heddle/search/placement/placement_decisions.h"
#include "heddle/search/solve/problem/problem.h"

namespace heddle::search {

// The prices of one graph on one mesh, computed once. They serve problems with any shares and
// limits.
class PlacementProblemBuilder {
 public:
  // All arguments must outlive this object. Fails if the problem is too large, or if pricing
  // exceeds the limit.
  static Result<PlacementProblemBuilder> Make(const Graph& graph, const compile::Plan& plan,
                                              const Decisions& decisions,
                                              const price::CostModel& model,
                                              const WorkLimit& limit = {});
  PlacementProblemBuilder(PlacementProblemBuilder&&) noexcept;
  ~PlacementProblemBuilder();

  // Returns a problem with a variable for each decision, by index, with these choices, or all.
  // Costs are whole nanoseconds.
  Result<PairwiseProblem> Build(const price::MoveShares& shares,
                                const ChoiceSets* choices = nullptr);
  // Returns a budget row for the bytes of one rank.
  PairwiseBudget Memory(const MemoryLimit& limit) const;

 private:
  class Impl;

  PlacementProblemBuilder(const Graph& graph, const compile::Plan& plan, const Decisions& decisions,
                          std::unique_ptr<Impl> impl);

  const Graph* graph_;
  const compile::Plan* plan_;
  const Decisions* decisions_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::search
