// Compares two runs of one job after a step: every bit of the loss and of the state of every rank.
#pragma once

#include <optional>
#include <string>

#include "heddle/run/train/training_run.h"

namespace heddle::run {

// The first element that differs.
struct Difference {
  int64_t rank = 0;
  // Unset: the loss.
  std::optional<StateKind> kind;
  size_t param = 0;
  // Index in the contiguous tensor, and its number of elements.
  int64_t element = 0;
  int64_t elements = 0;
  // -1 if the shapes differ.
  int64_t differing_elements = 0;
  // Shapes if these differ, values otherwise: `0.25 (0x1p-2)`.
  std::string first;
  std::string second;
};

struct Comparison {
  int64_t tensors = 0;
  int64_t elements = 0;
  // Number of bits that differ, over everything that was compared.
  int64_t differing_bits = 0;
  // In the order of ranks. For each rank: loss, gradients, moments and parameters, in registration
  // order.
  std::optional<Difference> first;
};

// Compares the ranks of `a`. `b` must have them, and may have more.
Comparison Compare(const TrainingRun& a, const TrainingRun& b, size_t params);

// Formats a number as `0x1.8p+1`, as C does; `nan` for every NaN.
std::string HexFloat(double value);

}  // namespace heddle::run
