// Simulate: everything that is to be known about one step of a graph on a cluster.
#pragma once

#include <optional>
#include <vector>

#include "heddle/price/sim/explain/bounds.h"
#include "heddle/price/sim/explain/critical_path.h"
#include "heddle/price/sim/explain/reasons.h"
#include "heddle/price/sim/timeline/timeline.h"

namespace heddle::price {

struct SimulateOptions {
  // In thousandths; the cluster's figure unless given.
  std::optional<int64_t> slowdown;
  // What a schedule may use; the device's memory unless given.
  std::optional<Bytes> memory_cap;
  // Of one step, on all ranks; unless given, as many as the first batch input of integers has elements on the whole mesh.
  std::optional<int64_t> tokens;
  MemoryRules memory = {};
};

// A step of several micro-batches: forward and backward run once for each.
struct WholeStep {
  int64_t micro_batches = 1;
  Nanos time;
  Nanos exposed;
};

struct Simulation {
  // Of the cluster; and devices that the step runs on.
  int64_t nodes = 1;
  int64_t ranks = 1;
  Bytes memory_cap;
  GraphCosts costs;
  SimGraph graph;
  Timeline timeline;
  LowerBounds bounds;
  CriticalPath path;
  // By collective of the timeline.
  std::vector<Exposure> why;
  // Tokens of one step on all ranks. None where the graph has no batch input of integers and the
  // user gives no number.
  std::optional<int64_t> tokens;
  std::optional<double> tokens_per_second;
  // None where the graph has no matrix products in its forward phase.
  std::optional<double> mfu;
  // Where the graph is one micro-batch of a step; the two figures above are of the step then.
  std::optional<WholeStep> whole = {};
};

// The rules that a model's timelines go by.
SimOptions TimelineOptions(const CostModel& model, const SimulateOptions& options);

// `graph` is local; otherwise, and where the mesh does not fit, an error.
Result<Simulation> Simulate(const Module& module, const Graph& graph, const CostModel& model,
                            const SimulateOptions& options);

// Makes `last` the last of `count` micro-batches, of which the others take as long as `other`.
void AddMicroBatches(const Simulation& other, int64_t count, Simulation& last);

}  // namespace heddle::price
