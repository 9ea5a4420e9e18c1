// Exact answers to pairwise problems, with a proof of their quality: a lower bound on every answer.
// docs/solve.md describes the method.
//
//   PairwiseProblem problem = ...;
//   PairwiseAnswer answer = Solve(problem, {.limit = WorkLimit(WorkAmount::Work(2))});
//   if (answer.proved()) Use(answer.x);
//
// The same problem gives the same answer on every machine with IEEE 754 arithmetic, unless a time
// limit stops it.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "heddle/search/solve/engine/engine.h"
#include "heddle/search/solve/problem/problem.h"

namespace heddle::search {

enum class SolveOutcome : uint8_t {
  // No assignment costs less, up to the tolerance.
  kProved,
  // The best assignment so far, because the limit was spent or memory is too small. Another may
  // cost less by the gap.
  kStopped,
  // No assignment is feasible. `FindConflict` (conflict.h) explains why.
  kInfeasible,
  // None was found within the limit.
  kNoAnswer,
};

struct PairwiseAnswer {
  SolveOutcome outcome = SolveOutcome::kNoAnswer;
  // A choice for every variable; empty if there is no assignment.
  std::vector<uint32_t> x;
  // The cost of `x`, and a lower bound of all assignments. Infinite if there is none; equal if the
  // outcome is kProved.
  double objective = std::numeric_limits<double>::infinity();
  double bound = -std::numeric_limits<double>::infinity();
  // Differences below this count as equal: a billionth of the objective, and the rounding error of
  // the sums.
  double tolerance = 0;
  SearchCounts counts;

  bool proved() const { return outcome == SolveOutcome::kProved; }
  // How much less another assignment may cost, as a share of the objective; 0 if proved.
  double gap() const;
};

// `FindErrors(problem)` must be empty.
PairwiseAnswer Solve(const PairwiseProblem& problem, const SolveOptions& options = {});

}  // namespace heddle::search
