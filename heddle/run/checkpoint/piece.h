// Pieces: what ranks hold of tensors, as checkpoints see it. No torch, no communicator.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "heddle/core/ir/dtype.h"
#include "heddle/core/ir/mesh.h"
#include "heddle/core/ir/placement.h"

namespace heddle::run {

using Sizes = std::vector<int64_t>;

// A box in a tensor: where it begins in each dimension, and how far it reaches. No element if a size is 0.
struct Slice {
  Sizes offset;
  Sizes shape;
  auto operator<=>(const Slice&) const = default;
};

// A whole tensor.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  Sizes shape;
  bool operator==(const TensorInfo&) const = default;
};

// What `rank` holds of a tensor of this shape. Uneven and empty parts are as `PartAt` (ir/type.h) has them.
Slice SliceOf(std::span<const int64_t> whole, const Placement& placement, const Mesh& mesh,
              int64_t rank);
Slice WholeSlice(std::span<const int64_t> whole);

bool IsInside(const Slice& slice, std::span<const int64_t> whole);

// Whether `rank` is the first of those that hold the same slice. Only that one gives it to a checkpoint.
bool IsFirstHolder(const Placement& placement, const Mesh& mesh, int64_t rank);

// Elements, and bytes of a box in row order without gaps.
int64_t CountOf(std::span<const int64_t> shape);
inline int64_t BytesOf(DType dtype, std::span<const int64_t> shape) {
  return ItemSize(dtype) * CountOf(shape);
}

// `[64,32]`
std::string FormatSizes(std::span<const int64_t> sizes);

}  // namespace heddle::run
