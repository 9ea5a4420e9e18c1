// Selects choices to remove, and splits a core in two.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heddle/search/solve/engine/sweeps.h"
#include "heddle/search/solve/reduce/core.h"

namespace heddle::search {

// Returns a byte for each choice of each variable in turn: 0 if every answer with it costs at least
// `cutoff`. Empty if a variable has no choice left.
std::vector<uint8_t> Affordable(const Core& core, const Sweeps& sweeps, double cutoff);

// Some choices of a variable. The other choices are the second half.
struct Branch {
  uint32_t variable = 0;
  // A byte for each choice.
  std::vector<uint8_t> keep;
  bool first_half_done = false;
};

// Chooses the variable to split: by amounts of a row, if cheap choices of one variable differ in
// them, otherwise by the excess of choices.
Branch ChooseBranch(const Core& core, const Sweeps& sweeps);

// Keeps the choices of one variable whose byte in `keep` is not 0.
void KeepOf(Core& core, uint32_t variable, std::span<const uint8_t> keep);

}  // namespace heddle::search
