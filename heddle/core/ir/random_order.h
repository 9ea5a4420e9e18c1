// The order in which a module draws random numbers. Each draw continues from the previous one, so
// an exact pass keeps this order.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle {

// The random ops of all graphs in order, such as `%mask = aten.rand_like`. Names survive passes and
// splitting, so lists before and after can be compared. The list includes opaque ops, which may
// draw.
std::vector<std::string> RandomOrder(const Module& module);

}  // namespace heddle
