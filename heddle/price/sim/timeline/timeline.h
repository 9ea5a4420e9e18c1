// Timeline: when everything happens, for one order of a graph's nodes; who waited for what, and for how long.
#pragma once

#include <span>
#include <vector>

#include "heddle/price/sim/timeline/sim_graph.h"

namespace heddle::price {

struct NodeTimes {
  // The compute stream comes to the node. A start is launched then.
  Nanos reached;
  // Work begins and ends: on the compute stream, or for a start on its own. A wait's begins when it has waited.
  Nanos begin;
  Nanos end;
  // The compute stream goes on to the next node.
  Nanos left;
};

// What one collective, or copy, did to the step.
struct CollectiveTimes {
  NodeId start;
  // None if nothing waits for it.
  NodeId wait;
  uint32_t stream = 0;
  // Behind others of its stream; on top of its own time, because of others on its links.
  Nanos queued;
  Nanos shared;
  // Compute stood still for it, or was over before it.
  Nanos exposed;
};

struct StreamTimes {
  Nanos busy;
  Nanos exposed;
};

struct Timeline {
  std::vector<NodeId> order;
  // By node.
  std::vector<NodeTimes> nodes;
  // In the order of their launches.
  std::vector<CollectiveTimes> collectives;
  // By node: of a start, its place among the collectives; Task::kNone for others.
  std::vector<uint32_t> collective_of;
  StreamTimes compute;
  // By stream of the SimGraph.
  std::vector<StreamTimes> streams;
  Nanos makespan;
  // makespan - compute.busy
  Nanos exposed;
  // While the node at a position of the order runs.
  std::vector<Bytes> live;
  Bytes peak;
  // Where it is reached first.
  size_t peak_position = 0;
};

// `order` has every node after those that it needs.
Timeline MakeTimeline(const SimGraph& graph, const SimOptions& options,
                      std::span<const NodeId> order);
// In the order of the graph.
Timeline MakeTimeline(const SimGraph& graph, const SimOptions& options);

}  // namespace heddle::price
