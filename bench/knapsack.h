// What PyTorch's `activation_memory_budget` decides, on graphs of Heddle: the baseline of memory budgets.
//
// As its partitioner does it. A cheapest cut saves the fewest bytes where ops that compute much, and reductions, are never repeated. That is a
// budget of 1. For less, a knapsack by time chooses which of these ops to save, each by itself; the others may be repeated, and the cheapest
// cut is found again. Budgets are shares of saved bytes: nobody looks at the peak.
#pragma once

#include <span>

#include "heddle/core/analysis/weights.h"
#include "heddle/search/memory/choice.h"

namespace heddle {

class KnapsackPolicy {
 public:
  // `again` has, by node, what it takes to run it a second time. All outlive this.
  KnapsackPolicy(const Graph& graph, const Weights& weights, std::span<const Nanos> again);

  // `share` from 0 to 1.
  search::Marks Decide(double share) const;

 private:
  // The cheapest cut where `banned` nodes are not repeated.
  search::Marks CutWith(const std::vector<bool>& banned) const;
  Bytes Saved(const search::Marks& marks) const;
  bool IsThereAnyway(ValueId v) const;
  std::vector<bool> Bans(bool only_expensive) const;
  std::vector<bool> Pack(const std::vector<NodeId>& items, Bytes most, double share) const;

  const Graph& graph_;
  const Weights& weights_;
  std::span<const Nanos> again_;
};

}  // namespace heddle
