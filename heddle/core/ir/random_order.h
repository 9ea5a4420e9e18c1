// The order in which a module draws random numbers. Each draw takes up where the last one ended, so a pass that is exact
// keeps this order, whatever else it moves.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle {

// The random ops of all graphs, in order, as `%mask = aten.rand_like`. Names carry over between passes, and from a graph to
// those that it is split into, so the lists from before and after can be compared. Ops that the table does not know are in it:
// they may draw.
std::vector<std::string> RandomOrder(const Module& module);

}  // namespace heddle
