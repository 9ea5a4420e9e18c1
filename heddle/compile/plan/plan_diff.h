// Differences between two plans.
#pragma once

#include <string>
#include <vector>

#include "heddle/compile/plan/plan.h"

namespace heddle::compile {

// A statement in both plans; empty if one of them lacks it.
struct PlanDifference {
  std::string before;
  std::string after;
};

// In the order of `a`, followed by statements that only `b` has. Statements correspond if they have
// the same pattern and describe the same node.
std::vector<PlanDifference> Diff(const Plan& a, const Plan& b);

// One line per statement, with `- ` and `+ ` before them.
std::string Format(const std::vector<PlanDifference>& differences);

}  // namespace heddle::compile
