// Whether the placements of a global graph fit together: every node gets its operands where it needs them to give its results where
// they are. What propagate writes does not, before insert-redistributions has run; what localize takes must.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle::compile {

struct Misplaced {
  NodeId node;
  // In words, with the node's op and name.
  std::string why;
};
// In the order of nodes, at most `most`.
std::vector<Misplaced> FindMisplaced(const Graph& graph, const Mesh& mesh, size_t most = SIZE_MAX);

}  // namespace heddle::compile
