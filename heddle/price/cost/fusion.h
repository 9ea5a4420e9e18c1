// Pointwise ops that feed each other, priced as the one kernel that a compiler makes of them.
#pragma once

#include "heddle/price/cost/cost_model.h"

namespace heddle::price {

// A chain is made of pointwise ops that stand together, nothing but views between them, and that data joins. Its kernel reads
// what comes from outside and writes what is used outside, once, and launches once. Its time is shared out among its nodes in
// proportion to what each would take alone, so that any order of the nodes adds up to the same.
void PriceFused(const Device& device, const Graph& graph, GraphCosts& costs);

}  // namespace heddle::price
