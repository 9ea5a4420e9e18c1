// Why a parameter lies where it lies: what every other storage would cost, all else solved anew.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "heddle/search/placement/auto_plan.h"

namespace heddle::search {

// What costs more, or less, than in the chosen plan.
struct CostDifference {
  std::string what;
  Nanos more;
};

struct StorageAlternative {
  Placement store;
  // As it is read then.
  Placement compute = {};
  bool possible = false;
  // Of the whole step.
  Nanos cost = {};
  // The largest first; they add up to what the step costs more, with those that are not listed.
  std::vector<CostDifference> because = {};
};

struct StorageExplanation {
  Mesh mesh;
  std::string pattern;
  size_t members = 0;
  size_t rank = 0;
  // The line of the plan that says it; 0 if it was found.
  uint32_t line = 0;
  // From the cheapest on: the first is chosen.
  std::vector<StorageAlternative> alternatives = {};
};

// `label` is a parameter of the graph, or the pattern of some that are decided together. Fails with the nearest name.
Result<StorageExplanation> ExplainStorage(AutoPlanner& planner, const Graph& graph,
                                          const compile::Plan& plan, std::string_view label,
                                          const AutoPlanner::Request& request);
std::string Format(const StorageExplanation& explanation);
nlohmann::ordered_json ToJson(const StorageExplanation& explanation);

}  // namespace heddle::search
