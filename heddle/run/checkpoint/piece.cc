#include "heddle/run/checkpoint/piece.h"

#include <fmt/ranges.h>

#include "heddle/core/ir/type.h"

namespace heddle::run {

Slice SliceOf(std::span<const int64_t> whole, const Placement& placement, const Mesh& mesh,
              int64_t rank) {
  HEDDLE_CHECK(placement.partials.empty(), "tensors with pending sums cannot be saved");
  Slice slice = WholeSlice(whole);
  for (size_t d = 0; d < placement.splits.size(); ++d) {
    Part part = PartAt(whole[d], placement.splits[d], mesh, rank);
    slice.offset[d] = part.begin;
    slice.shape[d] = part.size;
  }
  return slice;
}

Slice WholeSlice(std::span<const int64_t> whole) {
  return {Sizes(whole.size(), 0), Sizes(whole.begin(), whole.end())};
}

bool IsInside(const Slice& slice, std::span<const int64_t> whole) {
  if (slice.offset.size() != whole.size() || slice.shape.size() != whole.size()) return false;
  for (size_t d = 0; d < whole.size(); ++d) {
    if (slice.offset[d] < 0 || slice.shape[d] < 0 || slice.offset[d] > whole[d] ||
        slice.shape[d] > whole[d] - slice.offset[d])
      return false;
  }
  return true;
}

bool IsFirstHolder(const Placement& placement, const Mesh& mesh, int64_t rank, Axes alone) {
  for (AxisId axis = 0; axis < mesh.axes().size(); ++axis) {
    bool splits = alone.contains(axis);
    for (const Axes& axes : placement.splits) splits |= axes.contains(axis);
    if (!splits && mesh.Coordinate(rank, axis) != 0) return false;
  }
  return true;
}

int64_t CountOf(std::span<const int64_t> shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

std::string FormatSizes(std::span<const int64_t> sizes) {
  return fmt::format("[{}]", fmt::join(sizes, ","));
}

}  // namespace heddle::run
