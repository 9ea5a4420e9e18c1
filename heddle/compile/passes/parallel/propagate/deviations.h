// Where propagate would decide otherwise than somebody else has.
#pragma once

#include <vector>

#include "heddle/compile/plan/plan.h"
#include "heddle/compile/shard/op_splits.h"
#include "heddle/core/ir/graph.h"

namespace heddle::compile {

// Nodes of the first graph that propagate would split otherwise than `chosen` says, if all that it comes by before lies as chosen. By
// node: its split, or null where propagate may do as it likes. `module` is captured, and `plan` is for it.
Result<std::vector<NodeId>> FindDeviations(const Module& module, const Plan& plan,
                                           const std::vector<const OpSplit*>& chosen);

}  // namespace heddle::compile
