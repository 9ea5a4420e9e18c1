// Overlap: finds an order of starts, waits and compute, and buckets, that minimise step time under
// a hard memory limit.
#pragma once

#include "heddle/compile/manager/pass.h"
#include "heddle/compile/passes/overlap/order/overlap_options.h"
#include "heddle/price/sim/simulate.h"
#include "heddle/price/sim/timeline/replay.h"

namespace heddle::compile {

struct OverlapResult {
  Bytes cap;
  price::Outcome before;
  price::Outcome after;
  // The number of light nodes that moved across matrix products or attention.
  int64_t moved = 0;
  Changed changed = Changed::kNo;
};

// Schedules `graph` of `module`. Fails with Diag::kInfeasible and the smallest peak found if no
// order meets the limit.
Result<OverlapResult> Overlap(const Module& module, Graph& graph, const price::CostModel& model,
                              const price::SimulateOptions& sim, const OverlapOptions& options,
                              PassContext& context);

}  // namespace heddle::compile
