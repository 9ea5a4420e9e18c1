// All placements of a tensor on a mesh, and the distance from any of them to any other.
//
// The exhaustive search is independent of the planner that it tests.
#pragma once

#include <optional>
#include <vector>

#include "heddle/core/ir/mesh.h"
#include "heddle/core/ir/placement.h"
#include "heddle/core/ir/type.h"

namespace heddle {

// Returns all placements: every axis is replicated, a pending sum, or splits a dimension, in every
// order.
std::vector<Placement> AllPlacements(size_t rank, const Mesh& mesh);

// The cost of a redistribution: collectives, and elements that a rank receives.
struct Distance {
  int collectives = 0;
  int64_t moved = 0;
  auto operator<=>(const Distance&) const = default;
};

// Returns the distance from one of `placements` to each of them; nullopt if unreachable. The moves,
// and the elements that a rank with `n` elements receives from the others of `r` ranks, are:
//
//   all-gather:      removes the last axes of a dimension; receives the new elements
//   all-to-all:      moves them to the end of another dimension; n - n/r
//   reduce-scatter:  moves pending axes, in any order, to the end of a dimension; the removed part
//   all-reduce:      removes pending axes; 2 (n - n/r)
//   slice:           adds an unused axis to the end of a dimension; nothing
std::vector<std::optional<Distance>> Distances(const std::vector<Placement>& placements,
                                               size_t from, const Dims& dims, const Mesh& mesh);
// Number of elements of the largest part.
int64_t LargestPart(const Placement& placement, const Dims& dims, const Mesh& mesh);

}  // namespace heddle
