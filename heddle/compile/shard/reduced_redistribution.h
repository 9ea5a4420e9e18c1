// ReducedRedistribution: a redistribution without the parts that both placements share.
//
// Dimensions that are split at either end are numbered as the ends. Splitting another dimension on
// the way is never worthwhile. Paths that differ only in the numbers of dimensions share their
// steps.
#pragma once

#include <array>
#include <optional>
#include <span>

#include "heddle/compile/shard/packed_placement.h"
#include "heddle/compile/shard/redistribution_graph.h"

namespace heddle::compile {

struct ReducedRedistribution : CommonParts {
  static constexpr size_t kMostEnds = RedistributionGraph::kMostEnds;

  // The tensor has at most AxisByte::kMostDims dimensions.
  ReducedRedistribution(PackedPlacement from, PackedPlacement to, std::span<const Dim> dims,
                        const Mesh& mesh);

  // The axes over which a replicated number or vector becomes a pending sum, which are removed from
  // the goal. Nullopt if another kind of value would have to become pending.
  std::optional<Axes> TakeForgotten();
  // All steps between placements of the ends.
  RedistributionGraph Graph(const Mesh& mesh) const;
  // The placement of the whole tensor for one of the ends.
  PackedPlacement Restored(PackedPlacement packed) const;

  PackedPlacement start = 0;
  PackedPlacement goal = 0;
  std::array<uint8_t, kMostEnds> dim_of_end;
  std::array<uint8_t, AxisByte::kMostDims> end_of_dim;
  uint8_t ends = 0;
  // Whether the tensor is a number or a vector.
  bool is_small = false;
  // The remaining sizes: of the ends, and of all other dimensions together.
  std::array<int64_t, kMostEnds + 1> sizes;
  // Ranks along all axes of the start or the goal.
  int64_t ranks = 1;

 private:
  void FindEnds(PackedPlacement from, PackedPlacement to, std::span<const Dim> dims,
                const Mesh& mesh);
  PackedPlacement Removed(AxisByte use, AxisId axis) const;
};

}  // namespace heddle::compile
