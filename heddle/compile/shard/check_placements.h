// Checks that the placements of a global graph are consistent: every node's operands have the
// placements that its result placements require. The output of propagate becomes consistent with
// insert-redistributions; localize requires it.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle::compile {

struct Misplaced {
  NodeId node;
  // The problem, with the node's op and name.
  std::string why;
};
// In node order, at most `most`.
std::vector<Misplaced> FindMisplaced(const Graph& graph, const Mesh& mesh, size_t most = SIZE_MAX);

}  // namespace heddle::compile
