// Pointwise ops that feed each other, priced as one fused kernel.
#pragma once

#include "heddle/price/cost/cost_model.h"

namespace heddle::price {

// A chain is a run of pointwise ops, with only views in between, that are connected by data. Its
// kernel reads outside inputs once, writes results used outside once, and launches once. Its time
// is divided among its nodes in proportion to their separate times, so any order of the nodes gives
// the same sum.
void PriceFused(const Device& device, const Graph& graph, GraphCosts& costs);

}  // namespace heddle::price
