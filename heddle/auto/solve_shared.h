// SolveShared: the cheapest choice for every decision, where several may share a tensor.
#pragma once

#include "heddle/auto/shared_moves.h"
#include "heddle/solve/reduce/limit.h"
#include "heddle/solve/solve.h"

namespace heddle {

// What was learnt of a problem, for others that have the same decisions and shared moves.
struct SharedLearnt {
  std::vector<ShareWeights> weights = {};
  BoundRounds rounds = {};
  // The answer.
  std::vector<uint32_t> x = {};
};

// The same for problems with no other choices.
SharedLearnt KeepChoices(SharedLearnt learnt, const KeptOf& kept);

struct SharedOptions {
  // Gets what was learnt where it is empty; else rounds begin with it.
  SharedLearnt* learnt = nullptr;
  // How many rounds that is worth: the more, the smaller the steps to begin with.
  int learnt_rounds = 12;
  // An answer within this part of the bound is good enough.
  double gap = 0;
  // Gets the choices with which an answer may cost little more than the best: the nearest ones that make a problem of about as many
  // entries, or all.
  KeptOf* near = nullptr;
  size_t near_entries = size_t{1} << 21;
  // An exact problem with as few entries of its copies is quicker than one more round.
  size_t few_entries = size_t{1} << 18;
};

// Starts from the first choices of all, which are everything whole, if that is possible.
//
// 1. Each reader of a shared tensor pays a part of what it wants. That is a problem of pairs, and no plan costs less than its answer.
// 2. The choices that messages suggest for it, from round to round, make a small exact problem. Its answer is mostly the best there is.
// 3. What it costs tells which other choices are worth a look; the rest go.
// 4. For each place where the tensor may lie: who wanted alone what others might have wanted, too, pays more of it from now on. The bound
//    rises; again from 1.
// 5. What is left is small enough for the exact problem.
PairwiseAnswer SolveShared(const AutoProblem& problem, const Limit& limit,
                           const SharedOptions& options = {});

}  // namespace heddle
