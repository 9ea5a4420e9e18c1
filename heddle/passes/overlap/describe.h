// Remarks on a schedule: what of compute moved, which layers are scheduled alike, and why collectives are exposed.
#pragma once

#include <span>
#include <vector>

#include "heddle/passes/overlap/layers/layer_words.h"
#include "heddle/passes/overlap/overlap.h"

namespace heddle {

// By run of equal layers of `graph`, which `words` is of; `order` is of the schedule.
std::vector<EqualLayers> DescribeLayers(const Graph& graph, const LayerWords& words,
                                        std::span<const NodeId> order);

// A remark for each run.
void ExplainLayers(const Graph& graph, const std::vector<EqualLayers>& layers,
                   PassContext& context);

// `runs` are the equal layers of `before`. How many nodes of light compute run between other matrix products and attentions than they stood. A remark for those of each run of equal
// layers that run earlier, for those that run later, and likewise for all that are in no run.
int64_t ExplainMoved(const Graph& before, const std::vector<LayerRun>& runs, const Graph& after,
                     PassContext& context);

// A remark for each collective that compute stands still for.
Status ExplainExposed(const Module& module, const Graph& graph, const CostModel& model,
                      const SimulateOptions& options, Bytes cap, PassContext& context);

}  // namespace heddle
