// The decisions about a graph as a pairwise problem: what every choice costs, and every pair of them.
#pragma once

#include "heddle/auto/decisions.h"
#include "heddle/auto/price_sheet.h"
#include "heddle/cost/cost_model.h"
#include "heddle/solve/problem/problem.h"

namespace heddle {

struct AutoProblem {
  PairwiseProblem exact;
  // Every reader pays for itself. Easier, and never cheaper: a good answer to begin with.
  PairwiseProblem apart;
};

// A variable for each decision, under its number; behind them variables that say whether a tensor is moved to a placement for several readers at
// once. Costs are whole nanoseconds. With a budget, a row `memory` bounds the bytes of one rank: parameters, gradients, optimizer
// state, and what forward leaves for backward. Fails where the problem would be too large, or takes too long to price.
Result<AutoProblem> MakeAutoProblem(const Graph& graph, const Plan& plan,
                                    const Decisions& decisions, const CostModel& model,
                                    const std::optional<Bytes>& memory,
                                    const Deadline& deadline = {});

// Chooses for all variables behind those of the decisions: a tensor is moved for several readers where one of them wants that.
void SetCopies(const PairwiseProblem& problem, const Decisions& decisions,
               std::vector<uint32_t>& x);

}  // namespace heddle
