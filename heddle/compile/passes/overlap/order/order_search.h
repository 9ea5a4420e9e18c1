// OrderSearch: the best order of a graph's nodes under a cap on memory, judged by replays.
#pragma once

#include <vector>

#include "heddle/compile/passes/overlap/order/list_scheduler.h"
#include "heddle/compile/passes/overlap/order/overlap_options.h"
#include "heddle/price/sim/timeline/replay.h"

namespace heddle::compile {

struct FoundOrder {
  // Empty if none keeps the cap.
  std::vector<NodeId> order;
  price::Outcome outcome;
  // The least that any order needed.
  Bytes least;
};

class OrderSearch {
 public:
  // All outlive this.
  OrderSearch(const Graph& graph, const price::SimGraph& sim, const price::SimOptions& sim_options,
              const OverlapOptions& options, Freedom freedom);

  // `thorough`: with many bounds on how early collectives start and how much compute is put off, and not just with two.
  // `spare`: memory above the cap that large graphs are listed with. The scheduler overestimates
  // what an early start holds, so that such an order may keep the cap after all.
  FoundOrder Run(Bytes cap, bool thorough, Bytes spare = {});

  // So few that everything may be tried.
  static bool IsSmall(const Graph& graph) { return graph.node_count() <= kFewNodes; }

 private:
  bool IsSmall() const { return shape_.node_count() <= kFewNodes; }
  price::Outcome Judge(const std::vector<NodeId>& order);
  // Lists with ever less memory until the order keeps the cap. The first order.
  ListedOrder List(ListOptions options);

  // Caps to schedule under.
  std::vector<Bytes> Levels(Bytes cap, Bytes spare) const;
  // Lets compute move as far as it may; with `in_order`, lists it in its order, too. The longest lead.
  Nanos ListMoving(ListOptions options, bool in_order);
  Bytes TryUnder(Bytes level, uint32_t kept);

  static constexpr size_t kFewNodes = 2000;

  const price::SimGraph& sim_;
  const OverlapOptions& options_;
  const Freedom freedom_;
  StepShape shape_;
  ListScheduler scheduler_;
  const price::SimOptions sim_options_;
  price::Replay replay_;
  ListedOrder base_;
  Bytes cap_;
  bool thorough_ = false;
  // Of the order of the graph.
  price::Outcome given_;
  FoundOrder best_;
};

}  // namespace heddle::compile
