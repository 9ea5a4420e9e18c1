// ReducedWay: a redistribution without the parts that both placements have in common.
//
// Dimensions that are split at either end get numbers of their own, the ends; no other dimension is
// worth splitting on the way. Ways that differ only in the numbers of dimensions share their steps.
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

  // The axes over which a replicated number or vector becomes a pending sum, which the goal then no
  // longer has. None if anything else would have to become pending.
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
  // A number or a vector.
  bool is_small = false;
  // The sizes that are left to move: of the ends, and of all other dimensions together.
  std::array<int64_t, kMostEnds + 1> sizes;
  // Ranks along all axes that the start or the goal uses.
  int64_t ranks = 1;

 private:
  void FindEnds(PlacementWord from, PlacementWord to, std::span<const Dim> dims, const Mesh& mesh);
  PlacementWord Removed(AxisByte use, AxisId axis) const;
};

}  // namespace heddle::compile
