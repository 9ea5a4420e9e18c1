// Which choices are worth keeping, and how to cut a core in two.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heddle/search/solve/engine/sweeps.h"
#include "heddle/search/solve/reduce/core.h"

namespace heddle::search {

// A byte for each choice of each variable in turn: 0 for those with which no answer costs less than `cutoff`. Empty if that leaves
// a variable without any.
std::vector<uint8_t> Affordable(const Core& core, const Sweeps& sweeps, double cutoff);

// Some choices of a variable; the rest are the other half.
struct Branch {
  uint32_t variable = 0;
  // A byte for each choice.
  std::vector<uint8_t> keep;
  bool first_half_done = false;
};

// By what they take of a row, where cheap choices of one variable differ most in that; else by what choices add to the bound.
Branch ChooseBranch(const Core& core, const Sweeps& sweeps);

// Keeps the choices of one variable that are not 0 in `keep`.
void KeepOf(Core& core, uint32_t variable, std::span<const uint8_t> keep);

}  // namespace heddle::search
