// ChunkRegion: the nodes of a graph that run chunk by chunk.
//
// Grown from a collective: whoever makes what is divided, or reads it, joins if its call can be divided the same way. Then trimmed: before the
// first collective and behind the last, nothing but the products next to them stays, because that is what hides them.
#pragma once

#include <vector>

#include "heddle/compile/passes/chunks/cut_region.h"
#include "heddle/price/sim/timeline/sim_graph.h"

namespace heddle::compile {

class ChunkRegion : public CutRegion {
 public:
  // All outlive this. `fixed` nodes never join.
  ChunkRegion(const Graph& graph, const Uses& uses, CutRules& rules, std::vector<bool> fixed);

  // From a collective whose operand is divided like that.
  void Grow(NodeId start, const Cut& cut);
  // What does not pay is left out with `if_cheap`.
  void Trim(const price::SimGraph& sim, const price::CostModel& model, bool if_cheap);

  // How many collectives are in it.
  size_t collectives() const;

 private:
  void Join(NodeId node, const std::optional<NodeCut>& cut);
  void Reach(ValueId v);
  // Leaves out what is too far from collectives; true if that was anything, and more may be now.
  bool TrimOnce();
  bool DropDear(const price::SimGraph& sim, const price::CostModel& model);
  void MarkNear();
  bool IsStart(NodeId node) const;
  bool Works(NodeId node) const;

  std::vector<bool> fixed_;
  std::vector<bool> refused_;
  std::vector<ValueId> open_;
  Phase phase_ = Phase::kForward;
  // By node: a collective of the region comes before it, or after it; products since the last one, or up to the next.
  std::vector<bool> behind_;
  std::vector<bool> ahead_;
  std::vector<uint32_t> since_;
  std::vector<uint32_t> until_;
};

}  // namespace heddle::compile
