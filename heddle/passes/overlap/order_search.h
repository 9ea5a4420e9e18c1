// OrderSearch: the best order of a graph's nodes under a cap on memory, judged by replays.
#pragma once

#include <vector>

#include "heddle/passes/overlap/list_scheduler.h"
#include "heddle/passes/overlap/overlap.h"

namespace heddle {

struct FoundOrder {
  // Empty if none keeps the cap.
  std::vector<NodeId> order;
  Outcome outcome;
  // The least that any order needed.
  Bytes least;
};

class OrderSearch {
 public:
  // All outlive this.
  OrderSearch(const Graph& graph, const SimGraph& sim, const SimOptions& sim_options,
              const OverlapOptions& options);

  FoundOrder Run(Bytes cap);

 private:
  Outcome Judge(const std::vector<NodeId>& order);
  // Lists with ever less memory until the order keeps the cap.
  void List(ListOptions options);

  // Caps to schedule under, all at most `cap`.
  std::vector<Bytes> Levels(Bytes cap) const;
  void Defer(ListOptions options);
  Bytes TryUnder(Bytes level, uint32_t kept);

  static constexpr size_t kFewNodes = 2000;

  const SimGraph& sim_;
  const OverlapOptions& options_;
  StepShape shape_;
  ListScheduler scheduler_;
  Replay replay_;
  // In the order of the graph: where most is alive.
  size_t peak_at_;
  ListedOrder base_;
  Bytes cap_;
  // Of the order of the graph.
  Outcome given_;
  FoundOrder best_;
};

}  // namespace heddle
