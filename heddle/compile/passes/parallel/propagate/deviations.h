// Nodes where propagate would decide differently from given decisions.
#pragma once

#include <vector>

#include "heddle/compile/plan/plan.h"
#include "heddle/compile/shard/op_splits.h"
#include "heddle/core/ir/graph.h"

namespace heddle::compile {

// Returns the nodes of the first graph that propagate would split differently from `chosen`, if all
// earlier values are placed as chosen. Indexed by node: its split, or null where propagate is free
// to decide. `module` must be captured, and `plan` must be for it.
Result<std::vector<NodeId>> FindDeviations(const Module& module, const Plan& plan,
                                           const std::vector<const OpSplit*>& chosen);

}  // namespace heddle::compile
