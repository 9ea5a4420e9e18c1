// Lower bounds: what no schedule can beat.
#pragma once

#include <algorithm>
#include <vector>

#include "heddle/core/ir/graph.h"
#include "heddle/price/sim/timeline/timeline.h"

namespace heddle::price {

struct LowerBounds {
  // All of the compute stream's work.
  Nanos compute;
  // The collectives of the busiest stream.
  Nanos stream;
  // The longest chain of nodes that need each other.
  Nanos path;
  // With compute in this order, movable nodes aside: the collectives of a stream that must run between two of its nodes may take
  // longer than the compute between them. The sum of what is over, for the best choice of such pairs, on top of that compute.
  Nanos windows;

  Nanos best() const { return std::max({compute, stream, path, windows}); }
};

LowerBounds FindLowerBounds(const Graph& graph, const SimGraph& sim, const Timeline& timeline);

}  // namespace heddle::price
