#include "heddle/compile/shard/reduced_redistribution.h"

#include <algorithm>

#include "heddle/core/base/division.h"

namespace heddle::compile {

ReducedRedistribution::ReducedRedistribution(PackedPlacement from, PackedPlacement to,
                                             std::span<const Dim> dims, const Mesh& mesh)
    : CommonParts(from, to),
      is_small(dims.size() == 1 || std::ranges::all_of(dims, [](Dim dim) { return dim == 1; })) {
  FindEnds(from, to, dims, mesh);
  auto axes = static_cast<AxisId>(mesh.axes().size());
  for (AxisId axis = 0; axis < axes; ++axis) {
    start |= Removed(ByteOf(from, axis), axis);
    goal |= Removed(ByteOf(to, axis), axis);
    if (!ByteOf(start | goal, axis).replicated()) ranks *= mesh[axis].size;
  }
}

void ReducedRedistribution::FindEnds(PackedPlacement from, PackedPlacement to,
                                     std::span<const Dim> dims, const Mesh& mesh) {
  std::array<int64_t, AxisByte::kMostDims> parts;
  std::copy(dims.begin(), dims.end(), parts.begin());
  // Outer axes split first. The size that remains does not depend on the order of several axes.
  auto axes = static_cast<AxisId>(mesh.axes().size());
  for (AxisId axis = 0; axis < axes; ++axis) {
    AxisByte both = ByteOf(common, axis);
    if (both.splits() && !IsSymbol(parts[both.dim()]))
      parts[both.dim()] = CeilDiv(parts[both.dim()], mesh[axis].size);
  }
  uint32_t is_end = 0;
  for (PackedPlacement packed : {from, to}) {
    for (; packed != 0; packed >>= 8) {
      AxisByte use = ByteOf(packed, 0);
      if (!use.splits() || use.place() < prefix[use.dim()] || (is_end >> use.dim() & 1) != 0)
        continue;
      is_end |= 1U << use.dim();
      end_of_dim[use.dim()] = ends;
      sizes[ends] = parts[use.dim()];
      dim_of_end[ends++] = static_cast<uint8_t>(use.dim());
    }
  }
  int64_t rest = 1;
  for (size_t d = 0; d < dims.size(); ++d) {
    if ((is_end >> d & 1) == 0 && !IsSymbol(dims[d]) &&
        __builtin_mul_overflow(rest, parts[d], &rest))
      rest = INT64_MAX / 8;
  }
  sizes[ends] = rest;
}

PackedPlacement ReducedRedistribution::Removed(AxisByte use, AxisId axis) const {
  if (use.replicated() || ByteOf(common, axis).byte == use.byte) return 0;
  if (use.pending()) return AtAxis(axis, use.byte);
  return AtAxis(axis, AxisByte::Split(end_of_dim[use.dim()], use.place() - prefix[use.dim()]));
}

PackedPlacement ReducedRedistribution::Restored(PackedPlacement packed) const {
  PackedPlacement out = common;
  for (AxisId axis = 0; packed != 0; ++axis, packed >>= 8) {
    AxisByte use = ByteOf(packed, 0);
    if (use.splits()) {
      size_t dim = dim_of_end[use.dim()];
      out |= AtAxis(axis, AxisByte::Split(dim, use.place() + prefix[dim]));
    } else {
      out |= AtAxis(axis, use.byte);
    }
  }
  return out;
}

std::optional<Axes> ReducedRedistribution::TakeForgotten() {
  Axes axes;
  PackedPlacement rest = goal;
  for (AxisId axis = 0; axis < Mesh::kMaxAxes; ++axis) {
    AxisByte use = ByteOf(goal, axis);
    if (!use.pending()) continue;
    if (!is_small || use.op() != ReduceOp::kSum || !ByteOf(start, axis).replicated())
      return std::nullopt;
    rest &= ~AtAxis(axis, 0xff);
    axes.Add(axis);
  }
  goal = rest;
  return axes;
}

RedistributionGraph ReducedRedistribution::Graph(const Mesh& mesh) const {
  std::vector<int64_t> known;
  // Only for prices: an unknown size counts once for all paths.
  for (size_t e = 0; e < ends; ++e) known.push_back(IsSymbol(sizes[e]) ? 1 : sizes[e]);
  return RedistributionGraph(known, sizes[ends], UsedAxes(start | goal), mesh);
}

}  // namespace heddle::compile
