// What a pass preserves, whatever else it does, unless it declares otherwise.
#pragma once

#include "heddle/pass/pass.h"

namespace heddle {

// Roles of inputs and outputs are all there. Random ops, and ops that the table does not know, are the same and in the same
// order: each draws what it drew before. What a communicator launched before and still launches, it launches in the same order.
// Nodes are the same where their results have the same names.
Status CheckPreserved(const PassDef& pass, const Module& before, const Module& after);

}  // namespace heddle
