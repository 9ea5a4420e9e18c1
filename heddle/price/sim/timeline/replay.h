// Replay: makespan and peak memory of orders of a graph's nodes, fast enough for searches.
//
// A whole order costs some tens of nanoseconds for each node. After a change within a short range of the order, the replay goes on
// from the last state that was kept before it and stops where it meets a state that was kept behind it: from there on, everything
// is as it was, only earlier or later.
#pragma once

#include <span>
#include <vector>

#include "heddle/price/sim/timeline/stepper.h"

namespace heddle::price {

struct Outcome {
  Nanos makespan;
  // What of it the compute stream stands still, or is over while others are not.
  Nanos exposed;
  Bytes peak;

  bool operator==(const Outcome&) const = default;
};

class Replay {
 public:
  // In the order of the graph, which outlives this.
  explicit Replay(const SimGraph& graph, const SimOptions& options = {});

  const Outcome& outcome() const { return outcome_; }
  const std::vector<NodeId>& order() const { return order_; }

  // All nodes in another order, in which every node comes after those that it needs.
  const Outcome& Run(std::span<const NodeId> order);
  // The nodes at `first` and after it, in another order.
  const Outcome& Reorder(size_t first, std::span<const NodeId> nodes);

 private:
  // What was known before the node at `position` ran.
  struct Mark {
    size_t position = 0;
    Nanos time;
    // Stood still, up to here.
    Nanos stalled;
    Engine::State state;
  };

  void ReplayTime(size_t first, size_t last);
  void ReplayMemory(size_t first, size_t last);
  void FindPeak(size_t first, size_t last);
  void Finish(Nanos stalled);

  const SimGraph& graph_;
  Stepper stepper_;
  std::vector<NodeId> order_;
  Outcome outcome_;
  std::vector<Mark> marks_;
  // Bytes while the node at a position runs, and after it.
  std::vector<Bytes> live_;
  std::vector<Bytes> after_;
  // The most of each block of positions.
  std::vector<Bytes> block_peak_;
  // By storage: the position of the last node that needs it.
  std::vector<uint32_t> last_need_;
};

}  // namespace heddle::price
