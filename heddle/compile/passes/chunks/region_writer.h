// RegionWriter: writes a graph in which the nodes of a region run once for each piece.
//
//   %x! = comm.all_gather(%h, over=[tp])
//   %x  = comm.wait(%x!)
//   %y  = aten.mm(%x, %w)
//
// becomes
//
//   %h.0  = aten.slice.Tensor(%h, start=0, end=512)
//   %x.0! = comm.all_gather(%h.0, over=[tp])
//   %x.0  = comm.wait(%x.0!)
//   %y.0  = aten.mm(%x.0, %w)
//   ... the same for piece 1, and for readers of all of %y:
//   %y    = aten.cat([%y.0, %y.1])
//
// Readers of the whole of a sum get the sum of its pieces.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "heddle/compile/passes/chunks/cut_region.h"
#include "heddle/compile/passes/chunks/piece_nodes.h"

namespace heddle::compile {

// The copy of a node for one piece, by the name of its first result.
struct PieceCopy {
  std::string name;
  std::string original;
  int64_t piece;
};

class RegionWriter {
 public:
  // All must outlive this.
  RegionWriter(Graph& graph, const Mesh& mesh, CutRegion& region)
      : graph_(graph),
        mesh_(mesh),
        region_(region),
        rewriter_(graph),
        nodes_(graph, rewriter_),
        pieces_(static_cast<size_t>(region.pieces())) {}

  // Invalidates ids of the graph.
  Status Run();

  const std::vector<PieceCopy>& copies() const { return copies_; }
  // Names of slices and joins, and of views that have the names of values that are now in pieces.
  const std::vector<std::string>& moves() const { return moves_; }
  const std::vector<std::string>& views() const { return views_; }

 private:
  Status Write(const CutRegion::Stage& stage);
  Status AddCopy(NodeId node, int64_t piece);
  ValueId Operand(NodeId node, size_t operand, int64_t piece);
  ValueId Slice(ValueId v, const Cut& cut, int64_t piece);
  // Nodes outside the region that read only the type of `v` read the type of a piece.
  void LeaveType(ValueId v);
  void AddWhole(ValueId v);
  ValueId Join(ValueId v, const Cut& cut);
  // Adds the piece to the sum of the earlier ones, if any node reads the whole. The sum directly
  // follows the piece, so that only one sum exists.
  void AddToSum(ValueId v, int64_t piece);
  ValueId Cast(ValueId v, TypeId type);
  std::string NameOf(ValueId v, int64_t piece) const {
    return region_.style().keeps_names ? PieceName(graph_.name(v), piece)
                                       : std::string(graph_.name(v));
  }
  // The split whose parts the node concatenates again unchanged, if nothing else reads the parts;
  // otherwise none.
  NodeId UndoneSplit(NodeId node, const std::vector<ValueId>& operands) const;
  void Drop(NodeId copy);
  ValueId of(ValueId v, int64_t piece) const {
    return pieces_[static_cast<size_t>(piece)].at(v.index());
  }

  Graph& graph_;
  const Mesh& mesh_;
  CutRegion& region_;
  Rewriter rewriter_;
  PieceNodes nodes_;
  // The position where nodes are written.
  NodeId anchor_;
  // Keyed by piece and value of the region: the value for that piece.
  std::vector<std::unordered_map<uint32_t, ValueId>> pieces_;
  // Slices of whole values, keyed by value, dimension and piece.
  std::map<std::tuple<ValueId, uint32_t, int64_t>, ValueId> slices_;
  // Keyed by value: the sum of its pieces so far.
  std::unordered_map<uint32_t, ValueId> sums_;
  std::vector<PieceCopy> copies_;
  std::vector<std::string> moves_;
  std::vector<std::string> views_;
};

}  // namespace heddle::compile
