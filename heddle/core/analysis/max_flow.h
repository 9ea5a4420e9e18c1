// The largest flow through a network, and the cheapest cut that separates its two ends (Dinic 1970).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "heddle/core/base/id.h"

namespace heddle {

using FlowNodeId = Id<struct FlowNodeTag>;
using FlowEdgeId = Id<struct FlowEdgeTag>;

class MaxFlow {
 public:
  // The capacity of an edge that must not be cut.
  static constexpr int64_t kInfinite = std::numeric_limits<int64_t>::max();

  FlowNodeId AddNode();
  size_t node_count() const { return node_count_; }
  // From 0 on; all that are finite add up to less than 2^62.
  FlowEdgeId AddEdge(FlowNodeId from, FlowNodeId to, int64_t capacity);

  // What flows, which is what the cheapest cut costs. kInfinite if every cut has an edge that must not be cut: then there is none.
  int64_t Solve(FlowNodeId source, FlowNodeId sink);

  // --- After Solve

  int64_t Flow(FlowEdgeId edge) const;
  // The cheapest cut that is nearest to the sink.
  bool OnSinkSide(FlowNodeId node) const { return to_sink_[node.index()]; }

 private:
  // An edge, and the way back at the next number: together they hold what may still flow.
  struct Arc {
    uint32_t to;
    int64_t left;
  };

  void IndexArcs();
  bool FindLevels(uint32_t source, uint32_t sink);
  int64_t FillLevels(uint32_t source, uint32_t sink);
  bool Advance(uint32_t node);
  // By node: whether arcs with capacity left lead from it to the sink.
  std::vector<bool> ReachesSink(uint32_t sink) const;
  bool InfinitePath(uint32_t source, uint32_t sink) const;

  size_t node_count_ = 0;
  std::vector<Arc> arcs_;
  std::vector<int64_t> capacities_;
  // The arcs of each node, one node after the other.
  std::vector<uint32_t> first_;
  std::vector<uint32_t> by_node_;
  // The steps from the source; and for each node the arc to try next.
  std::vector<uint32_t> level_;
  std::vector<uint32_t> next_;
  std::vector<uint32_t> path_;
  std::vector<bool> to_sink_;
};

}  // namespace heddle
