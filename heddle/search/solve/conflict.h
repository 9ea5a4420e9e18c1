// Explains why a problem has no answer: a smallest set of its constraints that cannot all hold.
#pragma once

#include <string>
#include <vector>

#include "heddle/search/solve/problem/problem.h"
#include "heddle/search/solve/reduce/work_limit.h"

namespace heddle::search {

// Indices of the conflicting items, in the order of the problem. Without any one of them there is
// an answer, as far as known.
struct Conflict {
  std::vector<size_t> budgets;
  std::vector<size_t> restrictions;
  std::vector<size_t> relations;
  // Edges with forbidden pairs, and variables with forbidden choices.
  std::vector<size_t> edges;
  std::vector<size_t> variables;
  // False if the limit was spent first: the set may then contain unnecessary items.
  bool smallest = true;
  // For a single budget: the amount nearest to its bounds that the rest allows; NaN if unknown.
  double nearest_amount = 0;
};

// Finds a conflict of a valid problem without an answer. Stops reducing the set when the limit is
// spent.
Conflict FindConflict(const PairwiseProblem& problem, const WorkLimit& limit);

// Formats at most `most` items: `budget `memory` (at most 3; the least is 4), restriction 2 of `x`
// (input)`.
std::string Format(const PairwiseProblem& problem, const Conflict& conflict, size_t most = 8);

}  // namespace heddle::search
