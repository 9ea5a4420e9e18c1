// Timeline: the times of all nodes for one order, and which node waited for which collective.
#pragma once

#include <span>
#include <vector>

#include "heddle/price/sim/timeline/sim_graph.h"

namespace heddle::price {

// Times of one node.
struct NodeTimes {
  // When the compute stream reaches the node. A start is launched then.
  Nanos reached;
  // Begin and end of the work: on the compute stream, or for a start on its own stream. A wait
  // begins when it has finished waiting.
  Nanos begin;
  Nanos end;
  // When the compute stream continues with the next node.
  Nanos left;
};

// The effect of one collective or copy on the step.
struct CollectiveTimes {
  NodeId start;
  // None if nothing waits for it.
  NodeId wait;
  uint32_t stream = 0;
  // Time in the queue of its stream; time added by others on its links, or on those of the other
  // end of a transfer.
  Nanos queued;
  Nanos shared;
  // Time that one end of a transfer waits at the head of its stream for the other end.
  Nanos held;
  // Time the compute stream was idle for it, or had already finished.
  Nanos exposed;
};

// Time a stream works, and time compute waits for it.
struct StreamTimes {
  Nanos busy;
  Nanos exposed;
};

struct Timeline {
  std::vector<NodeId> order;
  // Indexed by node.
  std::vector<NodeTimes> nodes;
  // In the order of their launches.
  std::vector<CollectiveTimes> collectives;
  // Indexed by node: for a start, its index in `collectives`; otherwise Task::kNone.
  std::vector<uint32_t> collective_of;
  StreamTimes compute;
  // Indexed by stream of the SimGraph.
  std::vector<StreamTimes> streams;
  Nanos makespan;
  // makespan - compute.busy
  Nanos exposed;
  // Bytes while the node at a position of the order runs.
  std::vector<Bytes> live;
  Bytes peak;
  // The first position with the peak.
  size_t peak_position = 0;
};

// In `order`, every node must be after its dependences.
Timeline MakeTimeline(const SimGraph& graph, const SimOptions& options,
                      std::span<const NodeId> order);
// In graph order.
Timeline MakeTimeline(const SimGraph& graph, const SimOptions& options);

}  // namespace heddle::price
