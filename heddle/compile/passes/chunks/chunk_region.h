// ChunkRegion: the nodes of a graph that run chunk by chunk.
//
// It grows from a collective: producers and readers of a divided value join if their calls can be
// divided in the same way. Then it is trimmed: before the first and after the last collective, only
// the adjacent matrix products stay, because they hide the collectives.
#pragma once

#include <vector>

#include "heddle/compile/passes/chunks/cut_region.h"
#include "heddle/price/sim/timeline/sim_graph.h"

namespace heddle::compile {

class ChunkRegion : public CutRegion {
 public:
  // All must outlive this. `fixed` nodes never join.
  ChunkRegion(const Graph& graph, const Uses& uses, CutRules& rules, std::vector<bool> fixed);

  // Grows the region from a collective whose operand is divided by `cut`.
  void Grow(NodeId start, const Cut& cut);
  // Trims the region. With `if_cheap`, also removes collectives that are not worth dividing.
  void Trim(const price::SimGraph& sim, const price::CostModel& model, bool if_cheap);

  // The number of collectives in the region.
  size_t collectives() const;

 private:
  void Join(NodeId node, const std::optional<NodeCut>& cut);
  void Reach(ValueId v);
  // Removes nodes too far from collectives. Returns true if it removed any, because others may
  // follow.
  bool TrimOnce();
  bool DropDear(const price::SimGraph& sim, const price::CostModel& model);
  void MarkNear();
  bool IsStart(NodeId node) const;
  bool Works(NodeId node) const;

  std::vector<bool> fixed_;
  std::vector<bool> refused_;
  std::vector<ValueId> open_;
  Phase phase_ = Phase::kForward;
  // Indexed by node: whether a collective of the region comes before or after it; products since
  // the last collective, or until the next one.
  std::vector<bool> behind_;
  std::vector<bool> ahead_;
  std::vector<uint32_t> since_;
  std::vector<uint32_t> until_;
};

}  // namespace heddle::compile
