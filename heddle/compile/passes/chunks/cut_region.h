// CutRegion: the nodes of a graph that run once for each piece of their tensors.
//
// The regions of async-tensor-parallel, chunk-tokens and chunk-loss derive from it. They only find
// the nodes; a RegionWriter writes the pieces.
#pragma once

#include <vector>

#include "heddle/compile/passes/chunks/cut.h"
#include "heddle/core/analysis/uses.h"

namespace heddle::compile {

// How to write pieces.
struct PieceStyle {
  // Copies slices that are not contiguous, which collectives and views require.
  bool packs = true;
  // Names the pieces of %x %x.0 and %x.1, and their join %x. Otherwise all names are fresh.
  bool keeps_names = true;
  // Adds pieces of a sum in f32 if their type is narrower.
  bool adds_in_f32 = false;
};

class CutRegion {
 public:
  // Nodes that run together for one piece after another, before `anchor`.
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
  // How a value is cut; nullopt if every piece has the whole.
  const std::optional<Cut>& cut(ValueId v) const { return values_[v.index()]; }
  // Whether any node reads the whole of a value that the region computes in pieces.
  bool ReadWhole(ValueId v);
  bool ReadOnce(ValueId v) const { return uses_.of(v).size() == 1 && !uses_.is_output(v); }
  // Whether a node of the region reads the operand piece by piece.
  bool ReadsPieces(const Use& use) const;
  const Uses& uses() const { return uses_; }

  // Whether a node reads only the operand's type, so that any piece suffices.
  virtual bool Unread(const Use& use);
  // The attributes of a node's copy for a piece.
  virtual Attrs AttrsOf(NodeId node, int64_t piece) const;
  // In execution order. By default each node is a separate stage at its position.
  virtual std::vector<Stage> Stages() const;
  // The rows of a piece, if the whole has `rows` rows.
  virtual Rows RowsOf(int64_t rows, int64_t piece) const;
  // Whether a node only reshapes a value whose pieces keep their shape.
  virtual bool IsShape(NodeId /*node*/) const { return false; }
  // The save decision for a piece of a value.
  virtual Keep KeepOf(ValueId v) const { return graph_[v].keep; }
  const PieceStyle& style() const { return style_; }

 protected:
  // All must outlive this.
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
  // Indexed by node.
  std::vector<bool> in_;
  std::vector<NodeCut> cuts_;
  // Indexed by value.
  std::vector<std::optional<Cut>> values_;
};

}  // namespace heddle::compile
