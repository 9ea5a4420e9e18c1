// What the differences of two plans do to a step, each alone and all together.
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
Result<PlanComparison> CompareCosts(const Module& module, const compile::Plan& a,
                                    const compile::Plan& b, const compile::CompileOptions& options);
std::string Format(const PlanComparison& comparison);
nlohmann::ordered_json ToJson(const PlanComparison& comparison);

}  // namespace heddle::search
