// What every pass preserves, unless it declares otherwise.
#pragma once

#include "heddle/compile/manager/pass.h"

namespace heddle::compile {

// Compares a module with what a pass made of it. No role of an input or output is lost. Random ops and ops that the table does
// not know are all there, in the same order, so that each draws what it drew before. Each communicator launches what is
// left of its collectives in the same order. Nodes are recognised by the names of their results.
Status CheckPreserved(const PassDef& pass, const Module& before, const Module& after);

}  // namespace heddle::compile
