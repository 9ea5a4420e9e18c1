// Why a problem has no answer: a smallest set of what it asks for that cannot all hold.
#pragma once

#include <string>
#include <vector>

#include "heddle/search/solve/problem/problem.h"
#include "heddle/search/solve/reduce/limit.h"

namespace heddle::search {

// Numbers of what conflicts, each in the order of the problem. Without any one of them there is an answer, as far as known.
struct Conflict {
  std::vector<size_t> budgets;
  std::vector<size_t> restrictions;
  std::vector<size_t> relations;
  // Edges with forbidden pairs, and variables with forbidden choices.
  std::vector<size_t> edges;
  std::vector<size_t> variables;
  // Not if the limit was spent first: then some of it may be needless.
  bool smallest = true;
  // If there is just one budget: the amount nearest to its bounds that the rest leaves possible, or NaN if that is not known.
  double nearest_amount = 0;
};

// Of a problem without errors that has no answer. It stops making the set smaller when the limit is spent.
Conflict FindConflict(const PairwiseProblem& problem, const Limit& limit);

// `budget `memory` (at most 3; the least is 4), restriction 2 of `x` (input)`: at most `most` items.
std::string Format(const PairwiseProblem& problem, const Conflict& conflict, size_t most = 8);

}  // namespace heddle::search
