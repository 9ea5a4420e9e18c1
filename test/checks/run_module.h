// Runs modules on numbers that depend on a seed, and compares the results.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

// How closely the outputs of two runs must agree.
enum class Likeness {
  // Every bit.
  kBits,
  // Every value. Zeros are equal whatever their signs.
  kValues,
  // Up to rounding in f64.
  kRounded,
};

// Runs a local graph on all its ranks, each with its own inputs. Random ops use the seed. Returns
// outputs by rank.
Result<std::vector<std::vector<at::Tensor>>> RunOnRanks(const Module& local, uint32_t seed);

// Runs a local graph on its ranks with shards of whole inputs, and assembles its outputs. Runs a
// global graph on a single device, without its placements. Inputs are whole numbers from -2 to 2,
// or real ones.
Result<std::vector<at::Tensor>> RunWhole(const Module& module, uint32_t seed, bool whole_numbers);

// Returns the difference of two lists of outputs; empty if they agree.
std::string WhyDifferent(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b,
                         Likeness likeness);

}  // namespace heddle
