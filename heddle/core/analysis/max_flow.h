// Maximum flow through a network, and the minimum cut between its source and sink (Dinic 1970).
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

  // Nodes are numbered from 0.
  FlowNodeId AddNode();
  size_t node_count() const { return node_count_; }
  // `capacity` is at least 0. All finite capacities add up to less than 2^62.
  FlowEdgeId AddEdge(FlowNodeId from, FlowNodeId to, int64_t capacity);

  // Returns the maximum flow, which equals the cost of the minimum cut. Returns kInfinite if every
  // cut contains an edge of infinite capacity.
  int64_t Solve(FlowNodeId source, FlowNodeId sink);

  // --- After Solve

  int64_t Flow(FlowEdgeId edge) const;
  // Whether the node is on the sink's side of the minimum cut that is nearest to the sink.
  bool OnSinkSide(FlowNodeId node) const { return to_sink_[node.index()]; }

 private:
  // An edge, with its reverse edge at the next index. Both hold residual capacities.
  struct Arc {
    uint32_t to;
    int64_t left;
  };

  void IndexArcs();
  bool FindLevels(uint32_t source, uint32_t sink);
  int64_t FillLevels(uint32_t source, uint32_t sink);
  bool Advance(uint32_t node);
  // Indexed by node: whether edges with residual capacity lead from it to the sink.
  std::vector<bool> ReachesSink(uint32_t sink) const;
  bool InfinitePath(uint32_t source, uint32_t sink) const;

  size_t node_count_ = 0;
  std::vector<Arc> arcs_;
  std::vector<int64_t> capacities_;
  // The arcs of each node, grouped by node.
  std::vector<uint32_t> first_;
  std::vector<uint32_t> by_node_;
  // Distance from the source, and per node the next arc to try.
  std::vector<uint32_t> level_;
  std::vector<uint32_t> next_;
  std::vector<uint32_t> path_;
  std::vector<bool> to_sink_;
};

}  // namespace heddle
