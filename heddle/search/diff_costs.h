// What the differences of two plans do to a step, each alone and all together.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "heddle/compile/compile.h"
#include "heddle/search/evaluate/evaluate.h"
#include "heddle/compile/plan/plan_diff.h"

namespace heddle {

struct DifferenceCost {
  PlanDifference difference;
  // The first plan with this difference alone; or why it is no plan by itself.
  std::optional<StepOutcome> alone;
  std::string refusal;
};

struct PlanComparison {
  StepOutcome before;
  StepOutcome after;
  std::vector<DifferenceCost> differences;
};

// `module` is captured. Every plan is carried out with `options`, which have costs, and is simulated.
Result<PlanComparison> CompareCosts(const Module& module, const Plan& a, const Plan& b,
                                    const CompileOptions& options);
std::string Format(const PlanComparison& comparison);
nlohmann::ordered_json ToJson(const PlanComparison& comparison);

}  // namespace heddle
