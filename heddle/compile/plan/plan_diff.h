// What two plans say differently.
#pragma once

#include <string>
#include <vector>

#include "heddle/compile/plan/plan.h"

namespace heddle::compile {

// A statement as each of the plans has it; empty where one has none.
struct PlanDifference {
  std::string before;
  std::string after;
};

// In the order of `a`, then what only `b` has. Two statements are about the same if they have the same pattern, and are about the same node.
std::vector<PlanDifference> Diff(const Plan& a, const Plan& b);

// `- ` and `+ ` before each.
std::string Format(const std::vector<PlanDifference>& differences);

}  // namespace heddle::compile
