// Reductions that keep at least one best answer. What they decide becomes part of the core's trail.
#pragma once

#include <cstddef>

#include "heddle/search/solve/reduce/core.h"
#include "heddle/search/solve/reduce/limit.h"

namespace heddle::search {

// What reductions did, for reports.
struct ReduceCounts {
  // Choices that no answer can take, and choices that another is never worse than.
  size_t impossible = 0;
  size_t dominated = 0;
  // Variables that follow another, and variables that their neighbours decide.
  size_t contracted = 0;
  size_t eliminated = 0;
};

struct ReduceOptions {
  // Reductions stop early, and have done less, when it is spent.
  Limit limit;
  // An elimination that takes more steps is left undone.
  size_t most_work = 4'000'000;
};

// All of them, until none finds anything. False if there is no answer.
bool Reduce(Core& core, const ReduceOptions& options, ReduceCounts& counts);

// Takes away choices that are forbidden, have no partner at some neighbour, or break a row whatever the others do. False if a
// variable has no choice left.
bool FilterChoices(Core& core, const ReduceOptions& options, ReduceCounts& counts);

// Amounts that are the same for every choice of a variable move into the bounds of the row; rows that cannot be broken any more
// go. False if a row cannot be kept.
bool SimplifyRows(Core& core);

// Of two variables whose edge leaves each choice one partner, one follows the other. Whether there were any.
bool ContractEdges(Core& core, ReduceCounts& counts);

// Decides variables without amounts that have one choice, or at most two neighbours. Whether there were any.
bool EliminateVariables(Core& core, const ReduceOptions& options, ReduceCounts& counts);

// Takes away choices that another is never worse than. Whether there were any.
bool RemoveDominated(Core& core, const ReduceOptions& options, ReduceCounts& counts);

// Makes one of two variables, for as many pairs as fit the limits: first where both together have the fewest choices. A bound by
// messages can only get better by that, and what has more than two neighbours can be eliminated at last. How many pairs.
struct JoinLimits {
  // Choices of two variables that have become one; and if they have no neighbours, so that no matrix grows.
  size_t choices = 0;
  size_t lonely_choices = 0;
  // Entries of all matrices afterwards.
  size_t entries = 0;
};
size_t JoinVariables(Core& core, const JoinLimits& limits);

}  // namespace heddle::search
