// The location of a collective's ranks: the strides of its mesh axes determine the nodes it spans.
//
// Ranks fill nodes in order: on nodes of eight devices, rank 11 of any mesh is device 3 of node 1.
// On a mesh [dp=8, tp=8] a group over `tp` is on one node, and a group over `dp` has one rank on
// each of eight nodes.
#pragma once

#include "heddle/core/base/result.h"
#include "heddle/core/ir/mesh.h"

namespace heddle::price {

// The maximum number of ranks of a cluster.
inline constexpr int64_t kMostRanks = int64_t{1} << 20;

// The worst of the groups over some axes: if nodes do not divide evenly, groups differ.
struct GroupShape {
  int64_t ranks = 1;
  int64_t nodes = 1;
  // Ranks of the group on one node.
  int64_t most_per_node = 1;
  int64_t fewest_per_node = 1;

  bool operator==(const GroupShape&) const = default;
};

// `mesh` has at most kMostRanks ranks.
GroupShape ShapeOfGroups(const Mesh& mesh, const Axes& axes, int64_t devices_per_node);

}  // namespace heddle::price
