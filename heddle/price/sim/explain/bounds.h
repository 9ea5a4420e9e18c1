// Lower bounds on the time of any schedule.
#pragma once

#include <algorithm>
#include <vector>

#include "heddle/core/ir/graph.h"
#include "heddle/price/sim/timeline/timeline.h"

namespace heddle::price {

struct LowerBounds {
  // All work of the compute stream.
  Nanos compute;
  // The collectives of the busiest stream.
  Nanos stream;
  // The longest chain of dependent nodes.
  Nanos path;
  // With compute in this order, except movable nodes: the collectives of a stream that must run
  // between two nodes may take longer than the compute between them. This is all compute plus the
  // sum of the excess, for the best choice of such pairs.
  Nanos windows;

  Nanos best() const { return std::max({compute, stream, path, windows}); }
};

// `sim` and `timeline` must be those of `graph`.
LowerBounds FindLowerBounds(const Graph& graph, const SimGraph& sim, const Timeline& timeline);

}  // namespace heddle::price
