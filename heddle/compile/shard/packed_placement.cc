#include "heddle/compile/shard/packed_placement.h"

namespace heddle::compile {

static_assert(Mesh::kMaxAxes <= 7 && kReduceOpCount < 8, "an axis has a byte");

std::optional<PackedPlacement> Pack(const Placement& placement) {
  if (placement.splits.size() > AxisByte::kMostDims) return std::nullopt;
  PackedPlacement packed = 0;
  for (size_t d = 0; d < placement.splits.size(); ++d) {
    const Axes& axes = placement.splits[d];
    for (size_t i = 0; i < axes.size(); ++i) packed |= AtAxis(axes[i], AxisByte::Split(d, i));
  }
  for (const Partial& partial : placement.partials)
    packed |= AtAxis(partial.axis, AxisByte::Pending(partial.op));
  return packed;
}

PackedDimAxes::PackedDimAxes(PackedPlacement packed) {
  for (AxisId axis = 0; packed != 0; ++axis, packed >>= 8) {
    AxisByte use = ByteOf(packed, 0);
    if (!use.splits()) continue;
    axes[use.dim()][use.place()] = axis;
    ++counts[use.dim()];
  }
}

CommonParts::CommonParts(PackedPlacement a, PackedPlacement b) {
  PackedPlacement before = 0;
  // An axis is common only if all axes outside it are. Checks one position of all dimensions at a
  // time.
  do {
    before = common;
    for (AxisId axis = 0; axis < Mesh::kMaxAxes; ++axis) {
      AxisByte use = ByteOf(a, axis);
      if (use.byte != ByteOf(b, axis).byte || use.replicated()) continue;
      if (use.splits() && use.place() == prefix[use.dim()]) {
        common |= AtAxis(axis, use.byte);
        ++prefix[use.dim()];
      } else if (use.pending()) {
        common |= AtAxis(axis, use.byte);
      }
    }
  } while (common != before);
}

PackedPlacement CommonParts::RemovedFrom(PackedPlacement packed) const {
  PackedPlacement out = 0;
  for (AxisId axis = 0; axis < Mesh::kMaxAxes; ++axis) {
    AxisByte use = ByteOf(packed, axis);
    if (use.byte == ByteOf(common, axis).byte) continue;
    out |= AtAxis(axis, use.splits() ? use.byte - prefix[use.dim()] : use.byte);
  }
  return out;
}

Placement Unpack(PackedPlacement packed, size_t rank) {
  Placement placement;
  placement.splits.resize(rank);
  PackedDimAxes dims(packed);
  for (size_t d = 0; d < rank; ++d) {
    for (size_t i = 0; i < dims.counts[d]; ++i) placement.splits[d].Add(dims.axes[d][i]);
  }
  for (AxisId axis = 0; axis < Mesh::kMaxAxes; ++axis) {
    AxisByte use = ByteOf(packed, axis);
    if (use.pending()) placement.partials.push_back({axis, use.op()});
  }
  placement.Normalize();
  return placement;
}

}  // namespace heddle::compile
