// Moving a gather ahead of its place takes with it what it gathers.
#pragma once

#include "heddle/compile/passes/fsdp/scheduler.h"
#include "heddle/core/analysis/weights.h"

namespace heddle::compile {

// Nodes that make the operands of `gather` of parameters alone wish to stand before `anchor`.
void HoistBefore(const Graph& graph, const Weights& weights, NodeId gather, NodeId anchor,
                 Scheduler& scheduler);

}  // namespace heddle::compile
