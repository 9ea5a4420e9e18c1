// Pieces: the parts of tensors that ranks save. Independent of torch and communicators.
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

// A box in a tensor: its offset and size in each dimension. Empty if a size is 0.
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

// Returns the slice that `rank` stores of a tensor of this shape. Uneven and empty shards are as in
// `PartAt` (ir/type.h).
Slice SliceOf(std::span<const int64_t> whole, const Placement& placement, const Mesh& mesh,
              int64_t rank);
Slice WholeSlice(std::span<const int64_t> whole);

bool IsInside(const Slice& slice, std::span<const int64_t> whole);

// Whether `rank` is the first rank that stores its slice. Only this rank saves the slice. Along
// axes of `alone`, no other rank stores it.
bool IsFirstHolder(const Placement& placement, const Mesh& mesh, int64_t rank, Axes alone = {});

// Number of elements of a box.
int64_t CountOf(std::span<const int64_t> shape);
inline int64_t BytesOf(DType dtype, std::span<const int64_t> shape) {
  return ItemSize(dtype) * CountOf(shape);
}

// Formats sizes as `[64,32]`.
std::string FormatSizes(std::span<const int64_t> sizes);

}  // namespace heddle::run
