// Ops on elements and rows that a compiler runs as one kernel.
#pragma once

#include "heddle/price/cost/cost_model.h"

namespace heddle::price {

// Prices each group of ops on elements and rows as one kernel: it reads outside inputs once, writes
// results used outside once, and launches once.
//
// A node's level is the number of matrix products and collectives between it and the end of the
// graph. Neighbours on a level form a group: a path that leaves a group reaches another level, and
// never returns. The kernel's time is divided among its nodes in proportion to their separate
// times, so any order of the nodes gives the same sum.
void PriceFused(const Device& device, const ExecutionFigures& figures, const Graph& graph,
                GraphCosts& costs);

}  // namespace heddle::price
