// PieceNodes: copies of nodes for one piece, slices of wholes, and joins of pieces.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/ir/edit/inserter.h"

namespace heddle::compile {

// The name of a piece: `%x.1` for `%x`, `%x.1!` for `%x!`.
std::string PieceName(std::string_view name, int64_t piece);
// Whether rows of the dimension are contiguous: all dimensions before it have size 1.
bool LiesInOnePiece(const Dims& dims, size_t dim);

class PieceNodes : public Inserter {
 public:
  using Inserter::Inserter;

  // `size` rows from `begin` on.
  ValueId Slice(NodeId before, ValueId v, uint32_t dim, int64_t begin, int64_t size,
                std::string_view name);
  // Like Slice, but copied unless contiguous, because collectives and views require it.
  ValueId PackedSlice(NodeId before, ValueId v, uint32_t dim, int64_t begin, int64_t size,
                      std::string_view name);
  ValueId View(NodeId before, ValueId v, const Dims& dims, std::string_view name);
  // Concatenates all pieces.
  ValueId Cat(NodeId before, const std::vector<ValueId>& pieces, uint32_t dim, const Type& type,
              std::string_view name);
  // A node with the op, scope, phase and stream of `like`.
  NodeId Copy(NodeId before, NodeId like, std::span<const ValueId> operands, const Attrs& attrs,
              std::span<const ResultSpec> results);
};

}  // namespace heddle::compile
