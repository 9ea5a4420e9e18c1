// Candidates for merging gathers of weights and reductions of gradients.
#pragma once

#include <vector>

#include "heddle/compile/manager/pass.h"
#include "heddle/compile/passes/overlap/order/overlap_options.h"
#include "heddle/compile/passes/overlap/order/schedule_constraints.h"

namespace heddle::compile {

// Launches of each bucket.
using Buckets = std::vector<std::vector<NodeId>>;

// Candidates for the rule and effort of the options, under a memory limit. Empty if nothing is to
// be merged. Simulations choose among them.
Result<std::vector<Buckets>> BucketCandidates(const Module& module, const Graph& graph,
                                              const price::CostModel& model,
                                              const price::SimGraph& sim, Bytes cap,
                                              const OverlapOptions& options);
Changed MergeBuckets(Graph& graph, PassContext& context, const Buckets& buckets);

}  // namespace heddle::compile
