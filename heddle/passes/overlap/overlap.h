// Overlap: an order of starts, waits and compute, and buckets, that make a step short under a hard cap on memory.
#pragma once

#include <string>
#include <vector>

#include "heddle/pass/pass.h"
#include "heddle/passes/overlap/layers/share_layers.h"
#include "heddle/passes/overlap/order/overlap_options.h"
#include "heddle/sim/simulate.h"

namespace heddle {

// A run of equal layers of a graph, and which of them have one schedule.
struct EqualLayers {
  // The first matrix product or attention of the first, or what else comes first.
  std::string first;
  uint32_t count = 0;
  // Of a layer.
  uint32_t nodes = 0;
  // From the first layers to the last.
  std::vector<SharedLayers> shared;
};
// `31 equal layers of 106 nodes: layers 0 to 29 have one schedule`
std::string Format(const EqualLayers& layers);

struct OverlapResult {
  Bytes cap;
  Outcome before;
  Outcome after;
  // Light compute that runs between other matrix products and attentions than it stood.
  int64_t moved = 0;
  std::vector<EqualLayers> layers;
  Changed changed = Changed::kNo;
};

// Schedules `graph` of `module`. Diag::kInfeasible, with the smallest peak found, where no order keeps the cap.
Result<OverlapResult> Overlap(const Module& module, Graph& graph, const CostModel& model,
                              const SimulateOptions& sim, const OverlapOptions& options,
                              PassContext& context);

}  // namespace heddle
