// CutRegion: the nodes of a graph that run once for each piece of their tensors.
//
// The regions of async-tensor-parallel, chunk-tokens and chunk-loss derive from it. They only find
// the nodes; a RegionWriter writes the pieces.
#pragma once

#include <vector>

#include "heddle/compile/passes/chunks/cut.h"
#include "heddle/core/analysis/uses.h"

namespace heddle::compile {

// How pieces are written.
struct PieceStyle {
  // Slices that are not contiguous are copied, as collectives and views need it.
  bool packs = true;
  // Pieces of %x are %x.0, %x.1, and %x is their join. Otherwise all have fresh names.
  bool keeps_names = true;
  // Pieces of a sum are added in f32, if they are narrower.
  bool adds_in_f32 = false;
};

class CutRegion {
 public:
  // Nodes that run together, one piece after the other, before `anchor`.
  struct Stage {
    NodeId anchor;
    std::vector<NodeId> nodes;
  };
  struct Rows {
    int64_t begin;
    int64_t count;
  };

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
  // In execution order. By default each node is a stage at its place.
  virtual std::vector<Stage> Stages() const;
  // The rows of a piece, if the whole has `rows`.
  virtual Rows RowsOf(int64_t rows, int64_t piece) const;
  // Whether a node only gives a value another shape, which its pieces do not have.
  virtual bool IsShape(NodeId /*node*/) const { return false; }
  // The save decision for a piece of a value.
  virtual Keep KeepOf(ValueId v) const { return graph_[v].keep; }
  const PieceStyle& style() const { return style_; }

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
  PieceStyle style_;
  // By node.
  std::vector<bool> in_;
  std::vector<NodeCut> cuts_;
  // By value.
  std::vector<std::optional<Cut>> values_;
};

}  // namespace heddle::compile
