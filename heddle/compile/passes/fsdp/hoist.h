// Moves the inputs of a gather together with the gather.
#pragma once

#include "heddle/compile/passes/fsdp/scheduler.h"
#include "heddle/core/analysis/weights.h"

namespace heddle::compile {

// For a `gather` that moves to `anchor`: also prefers that position for nodes that compute its
// operands from parameters only.
void HoistBefore(const Graph& graph, const Weights& weights, NodeId gather, NodeId anchor,
                 Scheduler& scheduler);

}  // namespace heddle::compile
