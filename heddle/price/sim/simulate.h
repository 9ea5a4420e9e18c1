// Simulate: time, exposure and memory of one step of a graph on a cluster.
#pragma once

#include <optional>
#include <vector>

#include "heddle/price/sim/explain/bounds.h"
#include "heddle/price/sim/explain/critical_path.h"
#include "heddle/price/sim/explain/reasons.h"
#include "heddle/price/sim/timeline/timeline.h"

namespace heddle::price {

struct SimulateOptions {
  // In thousandths. Default: the cluster's value.
  std::optional<int64_t> slowdown;
  // Memory limit of the schedule. Default: the device's memory.
  std::optional<Bytes> memory_cap;
  // Tokens of one step on all ranks. Default: the elements of the first integer batch input on the
  // whole mesh.
  std::optional<int64_t> tokens;
  MemoryRules memory = {};
};

// A step of several micro-batches: forward and backward run once for each.
struct WholeStep {
  int64_t micro_batches = 1;
  Nanos time;
  Nanos exposed;
};

// The result of a simulation.
struct Simulation {
  // Nodes of the cluster, and devices that the step runs on.
  int64_t nodes = 1;
  int64_t ranks = 1;
  Bytes memory_cap;
  // Device memory at the peak: the values that the execution stores, and its overhead.
  Bytes peak;
  // Whether the peak is that of Heddle's device program, so values inside kernels do not count.
  bool program = false;
  GraphCosts costs;
  SimGraph graph;
  Timeline timeline;
  LowerBounds bounds;
  CriticalPath path;
  // Indexed by collective of the timeline.
  std::vector<Exposure> why;
  // Tokens of one step on all ranks. None if the graph has no integer batch input and the user
  // gives no number.
  std::optional<int64_t> tokens;
  std::optional<double> tokens_per_second;
  // None if the forward phase has no matrix products.
  std::optional<double> mfu;
  // Set if the graph is one micro-batch of a step; the two values above are then for the whole
  // step.
  std::optional<WholeStep> whole = {};
};

// The timeline rules of a model.
SimOptions TimelineOptions(const CostModel& model, const SimulateOptions& options);

// Fails if `graph` is not local, or if the mesh does not fit the cluster.
Result<Simulation> Simulate(const Module& module, const Graph& graph, const CostModel& model,
                            const SimulateOptions& options);

// Simulates all graphs of a module. The coordinates of a pipeline are simulated together: the
// critical path, tokens and MFU are those of the whole step.
Result<std::vector<Simulation>> SimulateGraphs(const Module& module, const CostModel& model,
                                               const SimulateOptions& options);

// Makes `last`, the graphs of a module, the last of `count` micro-batches; each of the others takes
// the time of `others`. The peak of a graph is the larger of the two.
void AddMicroBatches(std::span<const Simulation> others, int64_t count, std::span<Simulation> last);

}  // namespace heddle::price
