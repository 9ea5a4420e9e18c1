// Diff: the changes from one module to another.
//
// Nodes are matched by the name of their first result, and then by the computation. Among nodes in
// both, the fewest that explain the new order are reported as moved.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle {

enum class ChangeKind : uint8_t { kAppeared, kVanished, kChanged, kRenamed, kMoved };
std::string_view Name(ChangeKind kind);

// One changed line.
struct Change {
  ChangeKind kind;
  std::string graph;
  // The line before and after, if present. Headers, inputs and outputs are compared like nodes.
  std::string before;
  std::string after;
  // kMoved: the positions, and the node before it now (empty at the start).
  size_t from = 0;
  size_t to = 0;
  std::string follows;
};

// The changes from `a` to `b`.
std::vector<Change> Diff(const Module& a, const Module& b);
// One or two lines per change, and a summary line at the end. Empty without changes.
std::string Format(const std::vector<Change>& changes);

}  // namespace heddle
