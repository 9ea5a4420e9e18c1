// Two runs of one job, held against each other after a step: every bit of the loss and of what every rank holds.
#pragma once

#include <optional>
#include <string>

#include "heddle/run/train/training_run.h"

namespace heddle::run {

// The first element that differs.
struct Difference {
  int64_t rank = 0;
  // None: the loss.
  std::optional<Held> held;
  size_t param = 0;
  // In a contiguous tensor, and of how many.
  int64_t element = 0;
  int64_t elements = 0;
  // -1: the two have other sizes.
  int64_t differing_elements = 0;
  // Sizes where these differ, values otherwise: `0.25 (0x1p-2)`.
  std::string first;
  std::string second;
};

struct Comparison {
  int64_t tensors = 0;
  int64_t elements = 0;
  // Bits that are not the same, over everything that was compared.
  int64_t differing_bits = 0;
  // In the order of ranks: loss, then gradients, moments and parameters, in registration order.
  std::optional<Difference> first;
};

// Of the ranks of `a`; `b` has them, too, and maybe more.
Comparison Compare(const TrainingRun& a, const TrainingRun& b, size_t params);

// `0x1.8p+1`, as C prints it; `nan` for all of these.
std::string HexFloat(double value);

}  // namespace heddle::run
