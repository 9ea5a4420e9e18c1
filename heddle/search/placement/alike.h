// Nodes and parameters that are alike: the same in every layer. They are decided together, and one pattern names them.
#pragma once

#include <string>
#include <vector>

#include "heddle/compile/plan/plan.h"
#include "heddle/core/ir/graph.h"

namespace heddle::search {

struct Alike {
  // `layers.*.attention.wq.weight`; without stars where one name is all there is.
  std::string pattern;
  // Numbers of inputs, or of nodes, in order.
  std::vector<uint32_t> members;
};

// Parameters of one type whose names differ in numbers only.
std::vector<Alike> AlikeParams(const Graph& graph);
// Nodes of one op, phase and number (plan/node_numbers.h), with equal attributes and types, whose scopes differ in numbers only. In the
// order of their first members.
std::vector<Alike> AlikeNodes(const Graph& graph);

// The same plan in fewer words: one statement for parameters that are alike, where all of them lie alike, and no units that the graph
// says itself. `plan` has a statement for each parameter, by name.
compile::Plan Shortened(compile::Plan plan, const Graph& graph);

}  // namespace heddle::search
