// Global graphs without their placements, for running them on one rank.
#pragma once

#include "heddle/core/ir/graph.h"

namespace heddle {

// The same computation on a single device: no mesh, nothing is placed, and a redistribution is its operand. One that scales a pending
// sum or averages it over ranks multiplies or divides its operand.
Module Unplaced(Module module);

}  // namespace heddle
