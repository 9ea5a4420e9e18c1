// Whether a plan fits a module. `propagate` and searches check this first.
#pragma once

#include "heddle/compile/plan/plan.h"
#include "heddle/core/ir/graph.h"

namespace heddle::compile {

// Fails unless the module is as captured: global, without placements, not partitioned, and without
// a mesh or on the plan's mesh. Each statement must match a part of the module.
Status CheckPlannable(const Module& module, const Plan& plan);

}  // namespace heddle::compile
