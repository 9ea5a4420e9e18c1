// OrderSearch: the best order of a graph's nodes under a memory limit, measured by replays.
#pragma once

#include <vector>

#include "heddle/compile/passes/overlap/order/list_scheduler.h"
#include "heddle/compile/passes/overlap/order/overlap_options.h"
#include "heddle/price/sim/timeline/replay.h"

namespace heddle::compile {

struct FoundOrder {
  // Empty if no order meets the limit.
  std::vector<NodeId> order;
  price::Outcome outcome;
  // The smallest peak of any order.
  Bytes least;
};

class OrderSearch {
 public:
  // All must outlive this.
  OrderSearch(const Graph& graph, const price::SimGraph& sim, const price::SimOptions& sim_options,
              const OverlapOptions& options, Freedom freedom);

  // `thorough`: tries many limits on early starts and deferred compute, instead of two. `spare`:
  // memory above the limit with which orders of large graphs are built. The scheduler overestimates
  // the memory of early starts, so such an order may still meet the limit.
  FoundOrder Run(Bytes cap, bool thorough, Bytes spare = {});

  // Whether the graph is small enough to try everything.
  static bool IsSmall(const Graph& graph) { return graph.node_count() <= kFewNodes; }

 private:
  bool IsSmall() const { return constraints_.node_count() <= kFewNodes; }
  price::Outcome Judge(const std::vector<NodeId>& order);
  // Builds orders with less and less memory until one meets the limit. Returns the first order.
  ListedOrder List(ListOptions options);

  // Memory limits to build orders with.
  std::vector<Bytes> Levels(Bytes cap, Bytes spare) const;
  // Builds orders with movable compute; with `in_order`, also without. Returns the longest lead.
  Nanos ListMoving(ListOptions options, bool in_order);
  Bytes TryUnder(Bytes level, uint32_t kept);

  static constexpr size_t kFewNodes = 2000;

  const price::SimGraph& sim_;
  const OverlapOptions& options_;
  const Freedom freedom_;
  ScheduleConstraints constraints_;
  ListScheduler scheduler_;
  const price::SimOptions sim_options_;
  price::Replay replay_;
  ListedOrder base_;
  Bytes cap_;
  bool thorough_ = false;
  // Result of the graph's own order.
  price::Outcome given_;
  FoundOrder best_;
};

}  // namespace heddle::compile
