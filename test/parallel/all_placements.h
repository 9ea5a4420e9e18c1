// All placements of a tensor on a mesh, and how many collectives lie between any two of them.
//
// An exhaustive search over all moves, which shares no code with the planner that is tested with it.
#pragma once

#include <vector>

#include "heddle/ir/mesh.h"
#include "heddle/ir/placement.h"

namespace heddle {

// Every axis replicated, a pending sum, or among the axes of a dimension, in every order.
std::vector<Placement> AllPlacements(size_t rank, const Mesh& mesh);

// The fewest collectives from one of `placements` to each of them, or -1. Moves are
//   all-gather:      the last axes of a dimension go away,
//   all-to-all:      they go to the end of another dimension,
//   reduce-scatter:  any pending axes, in any order, go to the end of a dimension,
//   all-reduce:      any pending axes go away,
//   slice, for free: an axis that is not used goes to the end of a dimension.
std::vector<int> FewestCollectives(const std::vector<Placement>& placements, size_t from,
                                   size_t rank, const Mesh& mesh);

}  // namespace heddle
