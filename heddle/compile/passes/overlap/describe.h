// Remarks on a schedule: which compute moved, and why collectives are exposed.
#pragma once

#include <vector>

#include "heddle/compile/passes/overlap/overlap.h"
#include "heddle/core/analysis/equal_layers.h"

namespace heddle::compile {

// `runs` are the equal layers of `before`. How many nodes of light compute run between other matrix products and attentions than they stood. A remark for those of each run of equal
// layers that run earlier, for those that run later, and likewise for all that are in no run.
int64_t ExplainMoved(const Graph& before, const std::vector<LayerRun>& runs, const Graph& after,
                     PassContext& context);

// A remark for each collective that compute stands still for.
Status ExplainExposed(const Module& module, const Graph& graph, const price::CostModel& model,
                      const price::SimulateOptions& options, Bytes cap, PassContext& context);

}  // namespace heddle::compile
