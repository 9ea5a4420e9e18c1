// Problems like those of placing a training step on a mesh: layers of ops, forward and backward,
// with a parameter for every matmul.
#pragma once

#include <cstdint>

#include "heddle/search/solve/problem/problem.h"

namespace heddle {

struct LayeredOptions {
  int layers = 32;
  // Sizes of the mesh axes. The number of choices is 4 to the power of the number of axes.
  std::vector<int> mesh = {32, 8};
  // Random share of each cost.
  double noise = 0;
  // Budgets for the bytes of parameters, and of parameters and results of matmuls: from 0, the
  // minimum, to 1, everything replicated. Negative: no budget.
  double parameter_share = -1;
  double memory_share = -1;
  uint32_t seed = 1;
};

search::PairwiseProblem MakeLayeredProblem(const LayeredOptions& options);

}  // namespace heddle
