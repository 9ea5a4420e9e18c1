// Explains the placement of a parameter: the cost of every alternative storage, with all other
// decisions solved again.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "heddle/search/placement/auto_plan.h"

namespace heddle::search {

// A cost that is higher or lower than in the chosen plan.
struct CostDifference {
  std::string what;
  Nanos more;
};

struct StorageAlternative {
  Placement store;
  // The placement in which compute reads it.
  Placement compute = {};
  bool possible = false;
  // Cost of the whole step.
  Nanos cost = {};
  // The largest differences first. All differences, listed or not, add up to that of the step.
  std::vector<CostDifference> because = {};
};

struct StorageExplanation {
  Mesh mesh;
  std::string pattern;
  size_t members = 0;
  size_t rank = 0;
  // The line of the plan that specifies the storage; 0 if the solver chose it.
  uint32_t line = 0;
  // By increasing cost; the first is chosen.
  std::vector<StorageAlternative> alternatives = {};
};

// `label` is a parameter of the graph, or a pattern of parameters that are decided together. Fails
// for an unknown label, and suggests the nearest one.
Result<StorageExplanation> ExplainStorage(AutoPlanner& planner, const Graph& graph,
                                          const compile::Plan& plan, std::string_view label,
                                          const AutoPlanner::Request& request);
std::string Format(const StorageExplanation& explanation);
nlohmann::ordered_json ToJson(const StorageExplanation& explanation);

}  // namespace heddle::search
