// CutRegion: the nodes of a graph that run once for each piece of their tensors.
//
// The regions of async-tensor-parallel and chunk-tokens derive from it. They only find the nodes;
// a RegionWriter writes the pieces.
#pragma once

#include <vector>

#include "heddle/compile/passes/chunks/cut.h"
#include "heddle/core/analysis/uses.h"

namespace heddle::compile {

class CutRegion {
 public:
  virtual ~CutRegion() = default;

  int64_t pieces() const { return rules_.chunks(); }
  bool has(NodeId node) const { return in_[node.index()]; }
  // How a node of the region works on a piece.
  const NodeCut& cut(NodeId node) const { return cuts_[node.index()]; }
  // How a value is divided; none if every piece has the whole.
  const std::optional<Cut>& cut(ValueId v) const { return values_[v.index()]; }
  // Whether anything reads the whole of a value that the region makes in pieces.
  bool ReadWhole(ValueId v);
  bool ReadOnce(ValueId v) const { return uses_.of(v).size() == 1 && !uses_.is_output(v); }
  // Whether a node of the region reads the operand piece by piece.
  bool ReadsPieces(const Use& use) const;
  const Uses& uses() const { return uses_; }

  // Whether a node reads only the type of the operand, so that any piece will do.
  virtual bool Unread(const Use& use);
  // The attributes of a node's copy for a piece.
  virtual Attrs AttrsOf(NodeId node, int64_t piece) const;

 protected:
  // All outlive this.
  CutRegion(const Graph& graph, const Uses& uses, CutRules& rules)
      : graph_(graph),
        uses_(uses),
        rules_(rules),
        in_(graph.node_count()),
        cuts_(graph.node_count()),
        values_(graph.value_count()) {}

  const Graph& graph_;
  const Uses& uses_;
  CutRules& rules_;
  // By node.
  std::vector<bool> in_;
  std::vector<NodeCut> cuts_;
  // By value.
  std::vector<std::optional<Cut>> values_;
};

}  // namespace heddle::compile
