// Plans for any graph.
#pragma once

#include <string>

#include "test/attack/tokens.h"

namespace heddle {

// A plan that talks about what the graph has: its parameters, inputs and scopes, placed by chance. For a text that is not a graph, one that
// talks about nothing.
std::string MakePlan(const std::string& graph, AttackDice& dice);

}  // namespace heddle
