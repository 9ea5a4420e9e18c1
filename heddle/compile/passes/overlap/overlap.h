// Overlap: an order of starts, waits and compute, and buckets, that make a step short under a hard cap on memory.
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
  // Light compute that runs between other matrix products and attentions than it stood.
  int64_t moved = 0;
  Changed changed = Changed::kNo;
};

// Schedules `graph` of `module`. Diag::kInfeasible, with the smallest peak found, where no order keeps the cap.
Result<OverlapResult> Overlap(const Module& module, Graph& graph, const price::CostModel& model,
                              const price::SimulateOptions& sim, const OverlapOptions& options,
                              PassContext& context);

}  // namespace heddle::compile
