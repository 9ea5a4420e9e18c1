// TokenRegion: the nodes around mixtures of experts that run for one part of a rank's tokens after the other.
//
// What a value has to do with the tokens of a part:
//
//   rows   one of the equal slices of the whole along a dimension
//   own    what only the part itself has, as its tokens sorted by expert: no slice of anything, never put together
//   sum    something whose sum over parts is the whole, as counts and gradients of weights
//
// Found in one walk along the graph: it starts with the tokens that a mixture routes, goes up from them as far as their block can be
// cut, and then follows what reads them, through forward and backward. A sort by expert makes own of rows, and picking by the order that
// undoes it, or adding to the rows of tokens, makes rows of own. All else follows from factors.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/analysis/uses.h"
#include "heddle/passes/chunks/cut.h"

namespace heddle {

struct TokenPart {
  enum class Kind : uint8_t { kRows, kOwn, kSum };
  Kind kind;
  uint32_t dim = 0;
  bool operator==(const TokenPart&) const = default;
};

// By operand and result; none for what is whole.
struct NodeParts {
  std::vector<std::optional<TokenPart>> operands;
  std::vector<std::optional<TokenPart>> results;
};

class TokenRegion {
 public:
  // All outlive this.
  TokenRegion(const Graph& graph, const Mesh& mesh, const Uses& uses, int64_t parts);

  int64_t parts() const { return parts_; }
  // Mixtures whose tokens are in parts.
  size_t mixtures() const { return mixtures_; }
  // Why others are whole.
  const std::vector<std::pair<NodeId, std::string>>& refusals() const { return refusals_; }

  bool has(NodeId node) const { return nodes_[node.index()].has_value(); }
  const NodeParts& of(NodeId node) const { return *nodes_[node.index()]; }
  const std::optional<TokenPart>& of(ValueId v) const { return values_[v.index()]; }
  // Whether anything reads the whole of a value that is in parts.
  bool ReadWhole(ValueId v);
  // Whether a node reads nothing of the operand but its type.
  bool Unread(const Use& use);
  // How slices and own rows are cut; numbers of rows that are symbols stay as they are.
  NodeCut CutOf(NodeId node, const NodeParts& parts) const;
  const CutRules& rules() const { return rules_; }

 private:
  using Kind = TokenPart::Kind;

  void FindMixtures();
  // Marks how what leads to these tokens is cut.
  void GoUp(ValueId tokens);
  void Walk();
  std::optional<NodeParts> PartsOf(NodeId node);
  std::optional<NodeParts> OfExchange(NodeId node) const;
  std::optional<NodeParts> OfCounts(NodeId node) const;
  std::optional<NodeParts> OfOrder(NodeId node) const;
  std::optional<NodeParts> OfGroups(NodeId node) const;
  std::optional<NodeParts> OfFactors(NodeId node);
  // Whether the call takes parts and gives them.
  bool Fits(NodeId node, const NodeParts& parts);
  // Leaves out the blocks where own would have to be put together.
  void DropBroken();
  std::optional<std::string> FindBroken(NodeId node);
  void DropBlock(NodeId node, std::string why);

  std::optional<Kind> KindOf(ValueId v) const;
  bool IsSortedOrder(ValueId v) const;
  bool UndoesOrder(ValueId v) const;
  NodeParts Empty(NodeId node) const;
  size_t BlockAt(NodeId node) const { return blocks_[node.index()]; }

  const Graph& graph_;
  const Mesh& mesh_;
  const Uses& uses_;
  int64_t parts_;
  CutRules rules_;
  // By node; nodes without one share the first.
  std::vector<size_t> blocks_;
  // By block: whether it has a mixture that may be in parts.
  std::vector<bool> open_;
  std::vector<std::vector<NodeId>> dispatches_;
  size_t mixtures_ = 0;
  // Wanted: how nodes before the tokens of a mixture are cut.
  std::vector<std::optional<NodeParts>> wanted_;
  std::vector<std::optional<NodeParts>> nodes_;
  std::vector<std::optional<TokenPart>> values_;
  std::vector<std::pair<NodeId, std::string>> refusals_;
};

}  // namespace heddle
