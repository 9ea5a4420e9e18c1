// Problems like those of placing a training step on a mesh: layers of ops, forward and back, with a parameter for every matmul.
#pragma once

#include <cstdint>

#include "heddle/search/solve/problem/problem.h"

namespace heddle {

struct LayeredOptions {
  int layers = 32;
  // Sizes of the mesh axes: choices are 4 to the power of their number.
  std::vector<int> mesh = {32, 8};
  // The share of a cost that is random.
  double noise = 0;
  // Budgets for what parameters take, and for what parameters and results of matmuls take together: from 0, the least that is
  // possible, to 1, everything whole on every rank. None if negative.
  double parameter_share = -1;
  double memory_share = -1;
  uint32_t seed = 1;
};

search::PairwiseProblem MakeLayeredProblem(const LayeredOptions& options);

}  // namespace heddle
