// PieceNodes: copies of nodes for one piece, slices of a whole, and joins of pieces.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/ir/edit/inserter.h"

namespace heddle::compile {

// `%x.1` of `%x`, `%x.1!` of `%x!`.
std::string PieceName(std::string_view name, int64_t piece);
// Whether rows of the dimension are contiguous: all dimensions before it have size 1.
bool LiesInOnePiece(const Dims& dims, size_t dim);

class PieceNodes : public Inserter {
 public:
  using Inserter::Inserter;

  // The rows from `begin` on, `size` of them.
  ValueId Slice(NodeId before, ValueId v, uint32_t dim, int64_t begin, int64_t size,
                std::string_view name);
  // The same, copied if they are not contiguous: collectives, and views of it, need that.
  ValueId PackedSlice(NodeId before, ValueId v, uint32_t dim, int64_t begin, int64_t size,
                      std::string_view name);
  ValueId View(NodeId before, ValueId v, const Dims& dims, std::string_view name);
  // All pieces, one after the other.
  ValueId Cat(NodeId before, const std::vector<ValueId>& pieces, uint32_t dim, const Type& type,
              std::string_view name);
  // A node with the op, scope, phase and stream of `like`.
  NodeId Copy(NodeId before, NodeId like, std::span<const ValueId> operands, const Attrs& attrs,
              std::span<const ResultSpec> results);
};

}  // namespace heddle::compile
