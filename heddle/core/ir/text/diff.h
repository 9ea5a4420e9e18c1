// Diff: what became of the nodes of one module in another.
//
// Nodes are matched by the name of their first result, then by what they compute. Of the nodes in both, the fewest that
// explain the new order are called moved.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle {

enum class ChangeKind : uint8_t { kAppeared, kVanished, kChanged, kRenamed, kMoved };
std::string_view Name(ChangeKind kind);

struct Change {
  ChangeKind kind;
  std::string graph;
  // The line before and after, where there is one. Headers, inputs and outputs are changes like nodes.
  std::string before;
  std::string after;
  // kMoved: the positions, and the node that it follows now (empty at the start).
  size_t from = 0;
  size_t to = 0;
  std::string follows;
};

std::vector<Change> Diff(const Module& a, const Module& b);
// One change to a line or two, with a summary line at the end. Empty if there are none.
std::string Format(const std::vector<Change>& changes);

}  // namespace heddle
