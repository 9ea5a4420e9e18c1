// ReducedWay: a redistribution without the parts that both placements share.
//
// Dimensions that are split at either end are numbered as the ends. Splitting another dimension on
// the way is never worthwhile. Paths that differ only in the numbers of dimensions share their
// steps.
#pragma once

#include <array>
#include <optional>
#include <span>

#include "heddle/compile/shard/placement_word.h"
#include "heddle/compile/shard/step_graph.h"

namespace heddle::compile {

struct ReducedWay : CommonOfWords {
  static constexpr size_t kMostEnds = StepGraph::kMostEnds;

  // The tensor has at most AxisByte::kMostDims dimensions.
  ReducedWay(PlacementWord from, PlacementWord to, std::span<const Dim> dims, const Mesh& mesh);

  // The axes over which a replicated number or vector becomes a pending sum, which are removed from
  // the goal. Nullopt if another kind of value would have to become pending.
  std::optional<Axes> TakeForgotten();
  // All steps between placements of the ends.
  StepGraph Graph(const Mesh& mesh) const;
  // The placement of the whole tensor for one of the ends.
  PlacementWord Restored(PlacementWord word) const;

  PlacementWord start = 0;
  PlacementWord goal = 0;
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
  void FindEnds(PlacementWord from, PlacementWord to, std::span<const Dim> dims, const Mesh& mesh);
  PlacementWord Removed(AxisByte use, AxisId axis) const;
};

}  // namespace heddle::compile
