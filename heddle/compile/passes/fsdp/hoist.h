// Moving a gather ahead of its place takes with it what it gathers.
#pragma once

#include "heddle/core/analysis/weights.h"
#include "heddle/compile/passes/fsdp/scheduler.h"

namespace heddle {

// Nodes that make the operands of `gather` of parameters alone wish to stand before `anchor`.
void HoistBefore(const Graph& graph, const Weights& weights, NodeId gather, NodeId anchor,
                 Scheduler& scheduler);

}  // namespace heddle
