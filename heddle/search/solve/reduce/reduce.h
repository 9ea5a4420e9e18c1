// Reductions that keep at least one optimal answer. Their decisions become part of the core's
// trail.
#pragma once

#include <cstddef>

#include "heddle/search/solve/reduce/core.h"
#include "heddle/search/solve/reduce/work_limit.h"

namespace heddle::search {

// The effects of reductions, for reports.
struct ReduceCounts {
  // Choices that no answer can use, and dominated choices.
  size_t impossible = 0;
  size_t dominated = 0;
  // Variables that follow another, and variables that their neighbors determine.
  size_t contracted = 0;
  size_t eliminated = 0;
};

struct ReduceOptions {
  // Reductions stop early when the limit is spent.
  WorkLimit limit;
  // Maximum steps of an elimination.
  size_t most_work = 4'000'000;
};

// Runs all reductions until none changes the core. Returns false if there is no answer.
bool Reduce(Core& core, const ReduceOptions& options, ReduceCounts& counts);

// Removes choices that are forbidden, have no partner at some neighbor, or break a row whatever the
// others do. Returns false if a variable has no choice left.
bool FilterChoices(Core& core, const ReduceOptions& options, ReduceCounts& counts);

// Moves amounts that are equal for all choices of a variable into the bounds of the row, and
// removes rows that cannot be broken. Returns false if a row cannot be kept.
bool SimplifyRows(Core& core);

// If an edge leaves each choice one partner, one variable follows the other. Returns whether there
// were any.
bool ContractEdges(Core& core, ReduceCounts& counts);

// Eliminates variables without amounts that have one choice, or at most two neighbors. Returns
// whether there were any.
bool EliminateVariables(Core& core, const ReduceOptions& options, ReduceCounts& counts);

// Removes dominated choices: another is never worse. Returns whether there were any.
bool RemoveDominated(Core& core, const ReduceOptions& options, ReduceCounts& counts);

// Joins pairs of variables within the limits, those with the fewest pairs of choices first. A join
// can only improve the bound of messages, and allows variables with more than two neighbors to be
// eliminated. Returns the number of joins.
struct JoinLimits {
  // Maximum choices of a joined variable; and if it has no neighbors, so that no matrix grows.
  size_t choices = 0;
  size_t lonely_choices = 0;
  // Maximum entries of all matrices after the joins.
  size_t entries = 0;
};
size_t JoinVariables(Core& core, const JoinLimits& limits);

}  // namespace heddle::search
