// SolveShared: the cheapest choice for every decision, where several may share a tensor.
#pragma once

#include "heddle/auto/shared_moves.h"
#include "heddle/solve/reduce/deadline.h"
#include "heddle/solve/solve.h"

namespace heddle {

// Starts from the first choices of all, which are everything whole, if that is possible.
//
// 1. Each reader of a shared tensor pays a part of what it wants. That is a problem of pairs, and no plan costs less than its answer.
// 2. What the answer costs in truth tells which choices are worth a look; the others go.
// 3. Who wanted alone what others might have wanted, too, pays more of it from now on. The bound rises; again from 1.
// 4. What is left is small enough for the exact problem.
//
// `learnt` gets the parts where it is empty; else it has those of a problem with the same shared moves, and rounds begin from there.
PairwiseAnswer SolveShared(const AutoProblem& problem, const Deadline& deadline,
                           std::vector<ShareWeights>* learnt = nullptr);

}  // namespace heddle
