// All placements of a tensor on a mesh, and how far it is from any of them to any other.
//
// An exhaustive search over all moves, which shares no code with the planner that is tested with it.
#pragma once

#include <optional>
#include <vector>

#include "heddle/core/ir/mesh.h"
#include "heddle/core/ir/placement.h"
#include "heddle/core/ir/type.h"

namespace heddle {

// Every axis replicated, a pending sum, or among the axes of a dimension, in every order.
std::vector<Placement> AllPlacements(size_t rank, const Mesh& mesh);

// What it takes to get somewhere: collectives, and elements that a rank takes in.
struct Distance {
  int collectives = 0;
  int64_t moved = 0;
  auto operator<=>(const Distance&) const = default;
};

// The shortest way from one of `placements` to each of them, or nothing. Moves, and what a rank with `n` elements takes in
// from the others of `r` ranks, are
//   all-gather:      the last axes of a dimension go away; what is new,
//   all-to-all:      they go to the end of another dimension; n - n/r,
//   reduce-scatter:  any pending axes, in any order, go to the end of a dimension; what it no longer has,
//   all-reduce:      any pending axes go away; 2 (n - n/r),
//   slice, for free: an axis that is not used goes to the end of a dimension.
std::vector<std::optional<Distance>> Distances(const std::vector<Placement>& placements,
                                               size_t from, const Dims& dims, const Mesh& mesh);
// Elements of the largest part.
int64_t LargestPart(const Placement& placement, const Dims& dims, const Mesh& mesh);

}  // namespace heddle
