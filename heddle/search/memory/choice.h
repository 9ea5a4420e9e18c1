// MemoryChoice: what is kept of a step, and what that costs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "heddle/core/base/result.h"
#include "heddle/core/base/units.h"
#include "heddle/search/evaluate/evaluate.h"

namespace heddle::search {

// By value: what is decided. kDefault for what nobody decides.
using Marks = std::vector<Keep>;

// With the outcome of the step.
struct MemoryChoice : StepOutcome {
  // What it is called, for people: `full`, or `cut 3:12, none` for 12 blocks of the one and the rest of the other.
  std::string policy;
  Marks marks;
  price::MoveShares shares;
  // On the compute stream, in addition to what a step without recomputation has there.
  Nanos recompute;
  // Of values that forward makes and something behind it reads.
  Bytes kept;
  // Nodes.
  int64_t recomputed = 0;
  Bytes offloaded;
  // No way of keeping, recomputing and offloading is faster than this, for the budget that was asked for; nothing if none was.
  Nanos bound;
};

nlohmann::ordered_json ToJson(const MemoryChoice& choice);
// A table with a line for each.
std::string FormatChoices(const std::vector<MemoryChoice>& choices);

// As flags give it: above nothing, and with a unit.
Result<Bytes> ParseBudget(std::string_view text);

}  // namespace heddle::search
