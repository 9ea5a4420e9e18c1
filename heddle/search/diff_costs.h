// The effects of the differences between two plans on a step, each separately and all together.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "heddle/compile/compile.h"
#include "heddle/compile/plan/plan_diff.h"
#include "heddle/search/evaluate/evaluate.h"

namespace heddle::search {

struct DifferenceCost {
  compile::PlanDifference difference;
  // The first plan with only this difference, or why that is not a valid plan.
  std::optional<StepOutcome> alone;
  std::string refusal;
};

struct PlanComparison {
  StepOutcome before;
  StepOutcome after;
  std::vector<DifferenceCost> differences;
};

// Compares two plans of a captured module. Compiles every variant with `options`, which have costs,
// and simulates it.
Result<PlanComparison> CompareCosts(const Module& module, const compile::Plan& a,
                                    const compile::Plan& b, const compile::CompileOptions& options);
std::string Format(const PlanComparison& comparison);
nlohmann::ordered_json ToJson(const PlanComparison& comparison);

}  // namespace heddle::search
