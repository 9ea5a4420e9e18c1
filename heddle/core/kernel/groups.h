// Groups of nodes that one generated kernel computes, and a node order that keeps each group
// together.
//
// Grouping changes no value, because a kernel rounds after every node as ATen does. Values that
// only their own group reads have no storage.
#pragma once

#include <map>
#include <vector>

#include "heddle/core/analysis/liveness.h"
#include "heddle/core/analysis/uses.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

struct KernelGroup {
  enum class Form : uint8_t {
    // Elementwise nodes of equal size.
    kElements,
    // An RMSNorm or its gradient, and elementwise nodes of its size before and after it.
    kRows,
    // Casts of many tensors, of one type to another.
    kCasts,
  };
  Form form = Form::kElements;
  // In the order of the graph, with flat views between them.
  std::vector<NodeId> nodes;
  // Elementwise nodes of other groups whose results this group needs, and whose operands it reads
  // anyway. The kernel recomputes them, so that their results need not be kept.
  std::vector<NodeId> repeated = {};
  // kRows: the norm.
  NodeId norm = {};
};

struct ArrangedGraph {
  Graph graph;
  // Sorted by first node. The nodes of a group are neighbours in the graph.
  std::vector<KernelGroup> groups;
  // Casts of parameters that do not run, because a copy has their result (weight_copies.h), with
  // the parameter.
  std::map<NodeId, int64_t> copied = {};
};
// Finds groups and makes their nodes neighbours. `fixed` nodes keep their positions, and so do
// nodes that move data between ranks, draw random numbers or update storage.
ArrangedGraph ArrangeForKernels(const Graph& graph, const std::vector<bool>& fixed);
// The same, with analyses of `graph`.
ArrangedGraph ArrangeForKernels(Graph graph, const Uses& uses, const Liveness& liveness,
                                const std::vector<bool>& fixed);

// The results that a kernel stores: those that a node outside the group reads, unless that node's
// group recomputes them.
std::vector<ValueId> EscapingValues(const Graph& graph, const Uses& uses,
                                    const std::vector<KernelGroup>& groups, size_t group);

}  // namespace heddle
