// Removes placements of global graphs, to run them on one rank.
#pragma once

#include "heddle/core/ir/graph.h"

namespace heddle {

// Returns the same computation for a single device: without a mesh and placements. A redistribution
// becomes its operand, multiplied or divided if the redistribution scales or averages a pending
// sum.
Module Unplaced(Module module);

}  // namespace heddle
