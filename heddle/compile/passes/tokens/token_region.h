// TokenRegion: the nodes around mixtures of experts that run for one part of a rank's tokens after the other.
//
// Found in one walk along the graph: it starts with the tokens that a mixture routes, goes up from them as far as their block can be
// cut, and then follows what reads them, through forward and backward. A sort by expert makes own of rows, and picking by the order that
// undoes it, or adding to the rows of tokens, makes rows of own. All else follows from factors.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/compile/passes/chunks/cut_region.h"

namespace heddle::compile {

class TokenRegion : public CutRegion {
 public:
  // All outlive this.
  TokenRegion(const Graph& graph, const Uses& uses, CutRules& rules);

  // Mixtures whose tokens are in parts.
  size_t mixtures() const { return mixtures_; }
  // Why others are whole.
  const std::vector<std::pair<NodeId, std::string>>& refusals() const { return refusals_; }

  bool Unread(const Use& use) override;
  Attrs AttrsOf(NodeId node, int64_t piece) const override;

 private:
  using Kind = Cut::Kind;

  void FindMixtures();
  // Marks how what leads to these tokens is cut.
  void GoUp(ValueId tokens);
  void Walk();
  std::optional<NodeCut> PartsOf(NodeId node);
  std::optional<NodeCut> OfExchange(NodeId node) const;
  std::optional<NodeCut> OfCounts(NodeId node) const;
  std::optional<NodeCut> OfOrder(NodeId node) const;
  std::optional<NodeCut> OfGroups(NodeId node) const;
  std::optional<NodeCut> OfFactors(NodeId node);
  // Whether the call takes parts and gives them.
  bool Fits(NodeId node, const NodeCut& parts);
  // Leaves out the blocks where own would have to be put together.
  void DropBroken();
  std::optional<std::string> FindBroken(NodeId node);
  void DropBlock(NodeId node, std::string why);

  std::optional<Kind> KindOf(ValueId v) const;
  bool IsSortedOrder(ValueId v) const;
  bool UndoesOrder(ValueId v) const;
  size_t BlockAt(NodeId node) const { return blocks_[node.index()]; }

  // By node; nodes without one share the first.
  std::vector<size_t> blocks_;
  // By block: whether it has a mixture that may be in parts.
  std::vector<bool> open_;
  std::vector<std::vector<NodeId>> dispatches_;
  size_t mixtures_ = 0;
  // Wanted: how nodes before the tokens of a mixture are cut.
  std::vector<std::optional<NodeCut>> wanted_;
  std::vector<std::pair<NodeId, std::string>> refusals_;
};

}  // namespace heddle::compile
