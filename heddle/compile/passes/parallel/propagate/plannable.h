// Whether a plan can be for a module: `propagate` and whoever looks for plans ask before they read anything else of it.
#pragma once

#include "heddle/compile/plan/plan.h"
#include "heddle/core/ir/graph.h"

namespace heddle::compile {

// A module is planned once, as it was captured: global, without placements, and not taken apart; on the mesh of the plan, if on any. Every
// statement is about something in it.
Status CheckPlannable(const Module& module, const Plan& plan);

}  // namespace heddle::compile
