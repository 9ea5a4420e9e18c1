// Memory of a rank by decision.
#pragma once

#include "heddle/core/base/units.h"
#include "heddle/core/ir/graph.h"
#include "heddle/search/placement/placement_decisions.h"
#include "heddle/search/solve/problem/problem.h"

namespace heddle::search {

// A limit of a rank's memory for parameters, gradients, optimizer state and, unless they are
// recomputed, activations for backward.
struct MemoryLimit {
  Bytes bytes;
  bool counts_saved = true;
  bool operator==(const MemoryLimit&) const = default;
};

// Returns a budget row for the bytes of one rank.
PairwiseBudget MemoryRow(const Graph& graph, const Mesh& mesh, const Decisions& decisions,
                         const MemoryLimit& limit);

}  // namespace heddle::search
