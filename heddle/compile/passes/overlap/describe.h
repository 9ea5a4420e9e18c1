// Remarks on a schedule: which compute moved, and why collectives are exposed.
#pragma once

#include <vector>

#include "heddle/compile/passes/overlap/overlap.h"
#include "heddle/core/analysis/equal_layers.h"

namespace heddle::compile {

// Returns the number of light nodes that moved across matrix products or attention. Adds a remark
// for the nodes of each run of equal layers that run earlier, one for those that run later, and the
// same for nodes outside runs. `runs` are the equal layers of `before`.
int64_t ExplainMoved(const Graph& before, const std::vector<LayerRun>& runs, const Graph& after,
                     PassContext& context);

// Adds a remark for each exposed collective.
Status ExplainExposed(const Module& module, const Graph& graph, const price::CostModel& model,
                      const price::SimulateOptions& options, Bytes cap, PassContext& context);

}  // namespace heddle::compile
