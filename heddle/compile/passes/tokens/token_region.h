// TokenRegion: the nodes around mixtures of experts that run for one part of a rank's tokens after
// another.
//
// It starts at the tokens that a mixture routes, goes up as far as their block can be cut, and then
// follows their readers through forward and backward, in one walk. A sort by expert converts rows
// to rows that belong to one part (kOwn). Indexing with the inverse order, or adding to rows of
// tokens, converts them back. All other cuts follow from factors.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/compile/passes/chunks/cut_region.h"

namespace heddle::compile {

class TokenRegion : public CutRegion {
 public:
  // All must outlive this.
  TokenRegion(const Graph& graph, const Uses& uses, CutRules& rules);

  // The number of mixtures whose tokens are divided.
  size_t mixtures() const { return mixtures_; }
  // Reasons why others are not.
  const std::vector<std::pair<NodeId, std::string>>& refusals() const { return refusals_; }

  bool Unread(const Use& use) override;
  Attrs AttrsOf(NodeId node, int64_t piece) const override;

 private:
  using Kind = Cut::Kind;

  void FindMixtures();
  // Determines the cuts of nodes that lead to these tokens.
  void GoUp(ValueId tokens);
  void Walk();
  std::optional<NodeCut> PartsOf(NodeId node);
  std::optional<NodeCut> OfExchange(NodeId node) const;
  std::optional<NodeCut> OfCounts(NodeId node) const;
  std::optional<NodeCut> OfOrder(NodeId node) const;
  std::optional<NodeCut> OfGroups(NodeId node) const;
  std::optional<NodeCut> OfFactors(NodeId node);
  // Whether the call accepts and produces such parts.
  bool Fits(NodeId node, const NodeCut& parts);
  // Removes blocks in which parts of kind kOwn would have to be joined.
  void DropBroken();
  std::optional<std::string> FindBroken(NodeId node);
  void DropBlock(NodeId node, std::string why);

  std::optional<Kind> KindOf(ValueId v) const;
  bool IsSortedOrder(ValueId v) const;
  bool UndoesOrder(ValueId v) const;
  size_t BlockAt(NodeId node) const { return blocks_[node.index()]; }

  // Indexed by node. Nodes without a block share block 0.
  std::vector<size_t> blocks_;
  // Indexed by block: whether a mixture in it may be divided.
  std::vector<bool> open_;
  std::vector<std::vector<NodeId>> dispatches_;
  size_t mixtures_ = 0;
  // Wanted cuts of nodes before the tokens of a mixture.
  std::vector<std::optional<NodeCut>> wanted_;
  std::vector<std::pair<NodeId, std::string>> refusals_;
};

}  // namespace heddle::compile
