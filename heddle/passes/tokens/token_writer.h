// TokenWriter: a graph in which the nodes of a TokenRegion run once for each part of the tokens.
//
//   %y = aten.mm(%x, %w)        becomes     %x.0 = aten.slice.Tensor(%x, start=0, end=4)
//                                           %y.0 = aten.mm(%x.0, %w)
//                                           ... the same of part 1, and for whoever reads all of %y:
//                                           %y   = aten.cat([%y.0, %y.1])
//
// Whoever reads the whole of a sum gets the parts added up.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "heddle/passes/chunks/chunk_nodes.h"
#include "heddle/passes/tokens/token_region.h"

namespace heddle {

class TokenWriter {
 public:
  // All outlive this.
  TokenWriter(Graph& graph, const Mesh& mesh, TokenRegion& region, const Uses& uses)
      : graph_(graph),
        mesh_(mesh),
        region_(region),
        uses_(uses),
        rewriter_(graph),
        nodes_(graph, rewriter_) {}

  // Ids of the graph are void then.
  Status Run();

  // By the names of their first results: nodes that work on one part, and which; and what takes apart and puts together.
  const std::map<std::string, int64_t>& copies() const { return copies_; }
  const std::vector<std::string>& moves() const { return moves_; }

 private:
  Status Write(NodeId node);
  Status WriteCopy(NodeId node, int64_t part);
  Attrs AttrsOf(NodeId node, int64_t part) const;
  ValueId Operand(NodeId node, size_t i, int64_t part);
  ValueId Slice(NodeId node, ValueId v, uint32_t dim, int64_t part);
  void AddWhole(NodeId node, ValueId v);
  // Whoever reads nothing but its type reads that of a part.
  void LeaveType(ValueId v);

  Graph& graph_;
  const Mesh& mesh_;
  TokenRegion& region_;
  const Uses& uses_;
  Rewriter rewriter_;
  ChunkNodes nodes_;
  // By value and part: what stands for it.
  std::map<std::pair<ValueId, int64_t>, ValueId> parts_;
  // Slices of what is whole, by dimension, too.
  std::map<std::tuple<ValueId, uint32_t, int64_t>, ValueId> slices_;
  std::map<std::string, int64_t> copies_;
  std::vector<std::string> moves_;
};

}  // namespace heddle
