// Plans for any graph.
#pragma once

#include <string>

#include "test/attack/tokens.h"

namespace heddle {

// Returns a plan with random placements of the graph's parameters, inputs and scopes. For a text
// that is not a graph, the plan has no statements about it.
std::string MakePlan(const std::string& graph, AttackDice& dice);

}  // namespace heddle
