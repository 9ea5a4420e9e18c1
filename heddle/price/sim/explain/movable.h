// Movable nodes depend only on parameters, their state and buffers, so they can run at any time.
// Examples are the gather of a weight, and the cast before it.
#pragma once

#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle::price {

// Indexed by node.
std::vector<bool> FindMovable(const Graph& graph);

}  // namespace heddle::price
