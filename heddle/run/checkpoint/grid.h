// How a tensor lies in pieces: a grid, because each dimension is cut independently of the others.
#pragma once

#include "heddle/core/base/result.h"
#include "heddle/run/checkpoint/piece.h"

namespace heddle::run {

// A piece, and the rank whose file has it.
struct PlacedPiece {
  int64_t rank = 0;
  Slice slice;
};

class Grid {
 public:
  // Fails unless the pieces make a grid that covers the tensor, each element once. They have as many dimensions as the tensor,
  // and elements; a tensor without elements has no pieces.
  static Result<Grid> Make(const TensorInfo& tensor, std::span<const PlacedPiece> pieces);

  struct Cell {
    int64_t rank = 0;
    // The piece, and what it has in common with the slice that was asked for, both in the whole tensor.
    Slice piece;
    Slice common;
  };
  // The pieces that have elements of a slice of the tensor.
  std::vector<Cell> Cells(const Slice& slice) const;

  int64_t size() const { return static_cast<int64_t>(ranks_.size()); }

 private:
  // For each dimension where its parts begin, and at last where it ends.
  std::vector<Sizes> cuts_;
  // By position in the grid, the last dimension fastest.
  std::vector<int64_t> ranks_;
};

}  // namespace heddle::run
