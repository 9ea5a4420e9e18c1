// Groups nodes and parameters that repeat in every layer. A group is decided together, and a
// pattern names it.
#pragma once

#include <string>
#include <vector>

#include "heddle/compile/plan/plan.h"
#include "heddle/core/ir/graph.h"

namespace heddle::search {

struct RepeatGroup {
  // A pattern such as `layers.*.attention.wq.weight`; a plain name if it has one member.
  std::string pattern;
  // Indices of inputs, or of nodes, in ascending order.
  std::vector<uint32_t> members;
};

// Groups parameters of the same type whose names differ in numbers only.
std::vector<RepeatGroup> GroupRepeatedParams(const Graph& graph);
// Groups nodes of the same op, phase and number (plan/node_numbers.h), with equal attributes and
// types, whose scopes differ in numbers only. Groups are in the order of their first members.
std::vector<RepeatGroup> GroupRepeatedNodes(const Graph& graph);

// Compacts a plan that has a statement for each parameter, by name: one statement for a group of
// parameters with the same placement, and no units that follow from the graph.
compile::Plan Compacted(compile::Plan plan, const Graph& graph);

}  // namespace heddle::search
