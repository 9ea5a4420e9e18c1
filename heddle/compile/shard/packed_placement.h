// A placement packed into one word, with a byte for each axis, for searches over millions of
// placements.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "heddle/core/ir/mesh.h"
#include "heddle/core/ir/placement.h"

namespace heddle::compile {

// The byte of one axis: 0 if it is unused; for a pending reduction, its op plus 1; for a split, the
// dimension plus 1 and the axis's position among the axes of that dimension.
struct AxisByte {
  static constexpr size_t kMostDims = 30;

  static constexpr uint64_t Split(size_t dim, size_t place) { return (dim + 1) << 3 | place; }
  static constexpr uint64_t Pending(ReduceOp op) { return static_cast<uint64_t>(op) + 1; }

  uint8_t byte = 0;
  constexpr bool replicated() const { return byte == 0; }
  constexpr bool splits() const { return byte >> 3 != 0; }
  constexpr bool pending() const { return byte != 0 && byte >> 3 == 0; }
  constexpr size_t dim() const { return (byte >> 3) - 1U; }
  constexpr size_t place() const { return byte & 7; }
  constexpr ReduceOp op() const { return static_cast<ReduceOp>(byte - 1); }
};

using PackedPlacement = uint64_t;

constexpr AxisByte ByteOf(PackedPlacement packed, AxisId axis) {
  return {static_cast<uint8_t>(packed >> 8 * axis)};
}
constexpr PackedPlacement AtAxis(AxisId axis, uint64_t byte) { return byte << 8 * axis; }

// A bit for each axis that splits or is pending.
constexpr uint8_t UsedAxes(PackedPlacement packed) {
  uint8_t axes = 0;
  for (AxisId axis = 0; axis < Mesh::kMaxAxes; ++axis)
    axes |= static_cast<uint8_t>(ByteOf(packed, axis).replicated() ? 0U : 1U << axis);
  return axes;
}

// Nullopt if there are too many dimensions.
std::optional<PackedPlacement> Pack(const Placement& placement);
Placement Unpack(PackedPlacement packed, size_t rank);

// The axes of each dimension, in order.
struct PackedDimAxes {
  explicit PackedDimAxes(PackedPlacement packed);
  std::array<uint8_t, AxisByte::kMostDims> counts = {};
  std::array<std::array<AxisId, Mesh::kMaxAxes>, AxisByte::kMostDims> axes;
};

// The parts that two placements share, which no step between them changes: common outermost axes of
// each dimension, and equal pending reductions.
struct CommonParts {
  CommonParts(PackedPlacement a, PackedPlacement b);
  // One of the two placements without the shared parts. Positions count the remaining axes only.
  PackedPlacement RemovedFrom(PackedPlacement packed) const;

  PackedPlacement common = 0;
  // The number of common axes of each dimension.
  std::array<uint8_t, AxisByte::kMostDims> prefix = {};
};

}  // namespace heddle::compile
