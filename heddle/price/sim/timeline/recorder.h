// TimelineRecorder: collects the times of nodes, as an engine replays them, into a Timeline.
#pragma once

#include "heddle/price/sim/timeline/engine.h"
#include "heddle/price/sim/timeline/timeline.h"

namespace heddle::price {

class TimelineRecorder {
 public:
  // `graph` must outlive this.
  TimelineRecorder(const SimGraph& graph, std::span<const NodeId> order);

  // For Engine::Record.
  Engine::Times* engine_times() { return &engine_times_; }
  // Nodes must be added in order. The compute stream reached `id`, was idle for `stalled`, and
  // continues with the next node at `left`.
  void Add(NodeId id, Nanos reached, Nanos stalled, Nanos left);
  // A transfer that has reached the head of its stream.
  void AddArrival(uint32_t task, Nanos time) { arrived_.push_back({task, time}); }
  // `compute_end`: the end of the last node. `end`: also that of all collectives.
  Timeline Finish(Nanos compute_end, Nanos end);

 private:
  struct Arrival {
    uint32_t task;
    Nanos time;
  };
  void Complete(CollectiveTimes& c);
  void ExposeTail(Nanos tail);
  void AddMemory();

  const SimGraph& graph_;
  Engine::Times engine_times_;
  std::vector<Arrival> arrived_;
  Timeline t_;
};

}  // namespace heddle::price
