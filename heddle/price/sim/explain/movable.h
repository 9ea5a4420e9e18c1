// Movable nodes: those that depend on parameters, their state and buffers alone. Nothing in a step keeps them where they stand; a
// gather of a weight, with the cast before it, is one.
#pragma once

#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle::price {

// By node.
std::vector<bool> FindMovable(const Graph& graph);

}  // namespace heddle::price
