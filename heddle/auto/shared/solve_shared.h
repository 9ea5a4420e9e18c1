// SolveShared: the cheapest choice for every decision, where several may share a tensor.
#pragma once

#include "heddle/auto/shared/shared_moves.h"
#include "heddle/auto/shared/shared_sweeps.h"
#include "heddle/solve/reduce/limit.h"
#include "heddle/solve/solve.h"

namespace heddle {

// What was learnt of a problem, for others that have the same decisions and moves.
struct SharedLearnt {
  SharedMessages messages = {};
  // The answer.
  std::vector<uint32_t> x = {};
};

// The same for problems with no other choices.
SharedLearnt KeepChoices(SharedLearnt learnt, const KeptOf& kept);

struct SharedOptions {
  // Gets what was learnt where it is empty; else messages begin with it.
  SharedLearnt* learnt = nullptr;
  // An answer within this part of the bound is good enough.
  double gap = 0;
  // Gets the choices with which an answer may cost little more than the best: the nearest ones that make a problem of about as many
  // entries, or all.
  KeptOf* near = nullptr;
  size_t near_entries = size_t{1} << 20;
  // An exact problem with as few entries of its copies is quicker than more messages.
  size_t few_entries = size_t{1} << 18;
};

// Starts from the first choices of all, which are everything whole, if that is possible.
//
// 1. Messages (shared_sweeps.h) raise a bound on every answer, and suggest some.
// 2. The choices that they suggest, from run to run, make a small exact problem. Its answer is mostly the best there is.
// 3. What it costs tells which other choices are worth a look; the rest go.
// 4. A budget has a price, which is found where the bound is highest.
// 5. Mostly bound and answer meet. If not, what is left is small enough for the exact problem.
PairwiseAnswer SolveShared(const AutoProblem& problem, const Limit& limit,
                           const SharedOptions& options = {});

}  // namespace heddle
