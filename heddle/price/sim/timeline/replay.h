// Replay: makespan and peak memory of orders of a graph's nodes, fast enough for searches.
//
// A whole order takes some tens of nanoseconds per node. After a local change, the replay resumes
// from the last saved state before it, and stops when it reaches a saved state after it. From there
// on, everything is the same, only earlier or later.
#pragma once

#include <span>
#include <vector>

#include "heddle/price/sim/timeline/stepper.h"

namespace heddle::price {

// Time and peak memory of one order.
struct Outcome {
  Nanos makespan;
  // Time the compute stream is idle, including after its last kernel.
  Nanos exposed;
  Bytes peak;

  bool operator==(const Outcome&) const = default;
};

class Replay {
 public:
  // Starts with the order of the graph, which must outlive this.
  explicit Replay(const SimGraph& graph, const SimOptions& options = {});

  const Outcome& outcome() const { return outcome_; }
  const std::vector<NodeId>& order() const { return order_; }

  // Replays all nodes in another order, in which every node is after its dependences.
  const Outcome& Run(std::span<const NodeId> order);
  // Replays the nodes from position `first` on in another order.
  const Outcome& Reorder(size_t first, std::span<const NodeId> nodes);

 private:
  // The state before the node at `position` ran.
  struct Mark {
    size_t position = 0;
    Nanos time;
    // Idle time so far.
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
  // The maximum of each block of positions.
  std::vector<Bytes> block_peak_;
  // Indexed by storage: the position of the last node that needs it.
  std::vector<uint32_t> last_need_;
};

}  // namespace heddle::price
