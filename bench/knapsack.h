// The decisions of PyTorch's `activation_memory_budget` on graphs of Heddle, as a baseline for
// budgets.
//
// It follows PyTorch's partitioner. A minimum cut saves the fewest bytes if expensive ops and
// reductions are never recomputed; this is a budget of 1. For a smaller budget, a knapsack by time
// chooses which of these ops to save, each independently of the others. The others may be
// recomputed, and the minimum cut is computed again. Budgets are shares of the saved bytes, not of
// the peak.
#pragma once

#include <span>

#include "heddle/core/analysis/weights.h"
#include "heddle/search/memory/choice.h"

namespace heddle {

class KnapsackPolicy {
 public:
  // `again` contains the time of recomputing each node. All arguments must outlive this object.
  KnapsackPolicy(const Graph& graph, const Weights& weights, std::span<const Nanos> again);

  // `share` is from 0 to 1.
  search::Marks Decide(double share) const;

 private:
  // Returns the minimum cut if `banned` nodes are not recomputed.
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
