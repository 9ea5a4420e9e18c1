// ChunkNodes: nodes that stand for others in one chunk, and those that take a whole apart and put it together again.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/ir/edit/rewriter.h"

namespace heddle {

// `%x.1` of `%x`, `%x.1!` of `%x!`.
std::string ChunkName(std::string_view name, int64_t chunk);
// Whether rows of the dimension lie in one piece: those before it have one each.
bool LiesInOnePiece(const Dims& dims, size_t dim);

class ChunkNodes {
 public:
  // Both outlive this.
  ChunkNodes(Graph& graph, Rewriter& rewriter) : graph_(graph), rewriter_(rewriter) {}

  // A node of one result, in the scope and phase of the node that it stands before.
  ValueId Add(NodeId before, OpId op, std::span<const ValueId> operands, const Attrs& attrs,
              const Type& type, std::string_view name);
  // The rows of one chunk, so many in each. Those that lie apart are copied together: collectives, and views behind, want them in one
  // piece.
  ValueId Slice(NodeId before, ValueId v, uint32_t dim, int64_t rows, int64_t chunk,
                std::string_view name);
  // All chunks, one behind the other.
  ValueId Cat(NodeId before, std::span<const ValueId> chunks, uint32_t dim, const Type& type,
              std::string_view name);
  // The call of a node for one chunk, before it.
  NodeId Copy(NodeId node, std::span<const ValueId> operands, AttrsId attrs,
              std::span<const Type> types, int64_t chunk);

 private:
  Graph& graph_;
  Rewriter& rewriter_;
};

}  // namespace heddle
