// The properties that every pass preserves, unless its definition states otherwise.
#pragma once

#include "heddle/compile/manager/pass.h"

namespace heddle::compile {

// Compares a module with the result of a pass. All roles of inputs and outputs remain. Random and
// opaque ops remain in the same order, so that each draws the same numbers. Each communicator
// launches its remaining collectives in the same order. Nodes are matched by the names of their
// results.
Status CheckPreserved(const PassDef& pass, const Module& before, const Module& after);

}  // namespace heddle::compile
