// Exact answers to pairwise problems, with a proof of how good they are: a lower bound on every answer. docs/solve.md says how.
//
//   PairwiseProblem problem = ...;
//   PairwiseAnswer answer = Solve(problem, {.limit = Limit(Allowance::Work(2))});
//   if (answer.proved()) Use(answer.x);
//
// The same problem gives the same answer, on every machine that rounds as IEEE 754 says, unless a limit by the clock stops it.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "heddle/search/solve/engine/engine.h"
#include "heddle/search/solve/problem/problem.h"

namespace heddle::search {

enum class SolveOutcome : uint8_t {
  // No assignment costs less, but for the tolerance.
  kProved,
  // The best assignment so far, stopped by the limit or for want of memory; how much less another may cost is the gap.
  kStopped,
  // No assignment is possible. `FindConflict` (conflict.h) says why.
  kInfeasible,
  // None was found before the limit was spent.
  kNoAnswer,
};

struct PairwiseAnswer {
  SolveOutcome outcome = SolveOutcome::kNoAnswer;
  // A choice for every variable; empty if there is no assignment.
  std::vector<uint32_t> x;
  // What `x` costs, and what every assignment costs at least. Infinite if there is none; where the outcome is kProved they are equal.
  double objective = std::numeric_limits<double>::infinity();
  double bound = -std::numeric_limits<double>::infinity();
  // An assignment that is better by less than this counts as equal: a billionth of the objective, and what sums of such costs may be
  // off by.
  double tolerance = 0;
  SearchCounts counts;

  bool proved() const { return outcome == SolveOutcome::kProved; }
  // How much less another assignment may cost, as a share of the objective. 0 means proved.
  double gap() const;
};

// `FindErrors(problem)` is empty.
PairwiseAnswer Solve(const PairwiseProblem& problem, const SolveOptions& options = {});

}  // namespace heddle::search
