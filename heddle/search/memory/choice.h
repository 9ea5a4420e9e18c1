// MemoryChoice: the values of a step to keep, and the cost of that choice.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "heddle/core/base/result.h"
#include "heddle/core/base/units.h"
#include "heddle/search/evaluate/evaluate.h"

namespace heddle::search {

// The decision by value; kDefault for undecided values.
using Marks = std::vector<Keep>;

// A choice, with the outcome of its step.
struct MemoryChoice : StepOutcome {
  // Its name for people: `full`, or `cut 3:12, none` for 12 blocks of the first and the rest of the
  // second.
  std::string policy;
  Marks marks;
  price::MoveShares shares;
  // Time on the compute stream in addition to that of a step without recomputation.
  Nanos recompute;
  // Bytes of forward values that backward reads.
  Bytes kept;
  // Number of recomputed nodes.
  int64_t recomputed = 0;
  Bytes offloaded;
  // Lower bound of the step time over all choices for the requested budget; 0 without a budget.
  Nanos bound;
};

nlohmann::ordered_json ToJson(const MemoryChoice& choice);
// Formats a table with a line per choice.
std::string FormatChoices(const std::vector<MemoryChoice>& choices);

// Parses a flag: a positive number with a unit.
Result<Bytes> ParseBudget(std::string_view text);

}  // namespace heddle::search
