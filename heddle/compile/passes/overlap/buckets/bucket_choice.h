// Which gathers of weights and reductions of gradients to launch together: ways that are worth a try.
#pragma once

#include <vector>

#include "heddle/compile/manager/pass.h"
#include "heddle/compile/passes/overlap/order/overlap_options.h"
#include "heddle/compile/passes/overlap/order/step_shape.h"

namespace heddle::compile {

// Launches of each bucket.
using Buckets = std::vector<std::vector<NodeId>>;

// For the rule and effort of the options, under a cap on memory; none where nothing is to be merged. A judge takes the best of them.
Result<std::vector<Buckets>> BucketCandidates(const Module& module, const Graph& graph,
                                              const price::CostModel& model,
                                              const price::SimGraph& sim, Bytes cap,
                                              const OverlapOptions& options);
Changed MergeBuckets(Graph& graph, PassContext& context, const Buckets& buckets);

}  // namespace heddle::compile
