// What a step comes to on a cluster, in a few numbers: what searches compare.
#pragma once

#include "heddle/auto/auto_problem.h"
#include "heddle/cost/cost_model.h"
#include "heddle/ir/graph.h"

namespace heddle {

struct StepOutcome {
  Nanos step;
  // What of it no compute runs.
  Nanos exposed;
  Bytes peak;
  // What no schedule of the same nodes can go below: all of the compute stream's work; the best of all bounds, with compute in this
  // order (bounds.h); what the caller holds and forward leaves for backward.
  Nanos compute;
  Nanos bound;
  Bytes floor;
  // What of the collectives of each kind is exposed; all of it for a kind that the step has none of.
  MoveShares shares;
};

// `module` has one local graph.
Result<StepOutcome> MeasureStep(const Module& module, const CostModel& model);

}  // namespace heddle
