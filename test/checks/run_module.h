// Runs modules on numbers that follow from a seed, and compares what they compute.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

// How equal the outputs of two runs must be.
enum class Likeness {
  // Every bit.
  kBits,
  // Every value. Zeros are equal whatever their signs.
  kValues,
  // Up to rounding in f64.
  kRounded,
};

// Runs a local graph on all its ranks, each with inputs of its own. Random ops draw from the seed. Answers by rank and output.
Result<std::vector<std::vector<at::Tensor>>> RunOnRanks(const Module& local, uint32_t seed);

// Runs a local graph on its ranks, with parts of whole inputs, and puts its outputs together; a global graph on a single device,
// without its placements. Inputs are whole numbers from -2 to 2, or real ones.
Result<std::vector<at::Tensor>> RunWhole(const Module& module, uint32_t seed, bool whole_numbers);

// Why two lists of outputs differ. Empty if they do not.
std::string WhyDifferent(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b,
                         Likeness likeness);

}  // namespace heddle
