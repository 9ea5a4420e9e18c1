// The pieces of a tensor. They form a grid, because each dimension is cut independently of the
// others.
#pragma once

#include "heddle/core/base/result.h"
#include "heddle/run/checkpoint/piece.h"

namespace heddle::run {

// A piece, and the rank whose file contains it.
struct PlacedPiece {
  int64_t rank = 0;
  Slice slice;
};

class Grid {
 public:
  // Fails unless the pieces form a grid that covers each element of the tensor exactly once. Every
  // piece has the rank of the tensor and at least one element. A tensor without elements has no
  // pieces.
  static Result<Grid> Make(const TensorInfo& tensor, std::span<const PlacedPiece> pieces);

  struct Cell {
    int64_t rank = 0;
    // The piece, and its intersection with the requested slice; both are boxes in the whole tensor.
    Slice piece;
    Slice common;
  };
  // Returns the pieces that overlap a slice of the tensor.
  std::vector<Cell> Cells(const Slice& slice) const;

  int64_t size() const { return static_cast<int64_t>(ranks_.size()); }

 private:
  // Positions at which each dimension is cut, and its end.
  std::vector<Sizes> cuts_;
  // By position in the grid, last dimension fastest.
  std::vector<int64_t> ranks_;
};

}  // namespace heddle::run
