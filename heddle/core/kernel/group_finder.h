// GroupFinder: joins nodes into groups, in graph order.
#pragma once

#include <map>
#include <vector>

#include "heddle/core/kernel/groups.h"
#include "heddle/core/kernel/half_turn.h"

namespace heddle {

class GroupFinder {
 public:
  // `segment` has a number for each node, and groups stay within one segment. Nodes with 0 are in
  // no group.
  GroupFinder(const Graph& graph, const Uses& uses, const std::vector<uint32_t>& segment)
      : graph_(graph), uses_(uses), segment_(segment) {}

  std::vector<KernelGroup> Find();

 private:
  // Nodes that form one kernel, or a single node. Its id is that of the node it started with.
  struct Unit {
    // Empty for a node that kernels do not compute.
    std::vector<NodeId> nodes;
    int64_t lanes = 0;
    NodeId norm = {};
    size_t computed = 0;
    // Whether there is a half turn, which needs a norm of its rows.
    bool turns = false;
  };

  void FindTurns();
  void GroupCasts(std::vector<KernelGroup>& groups);
  void Join(NodeId node);
  bool Merge(uint32_t a, uint32_t b);
  // Flat views between nodes of `unit`.
  void AddViews(Unit& unit, uint32_t a, uint32_t b);
  // Makes the nodes of `unit` the nodes inside, for AddViews, MakesCycle and InputCount.
  void MarkInside(const Unit& unit);
  // Whether a path leaves the nodes of `unit` and comes back.
  bool MakesCycle(const Unit& unit);
  // The number of values that the nodes of `unit` read from outside.
  size_t InputCount(const Unit& unit);
  void Repeat(KernelGroup& group) const;
  // The values that a kernel reads for the node.
  std::vector<ValueId> OperandsOf(NodeId node) const;
  bool IsComputed(NodeId node) const { return lanes_[node.index()] > 0; }
  bool IsInside(NodeId node) const { return inside_[node.index()] == merge_; }

  const Graph& graph_;
  const Uses& uses_;
  const std::vector<uint32_t>& segment_;
  // Lanes of a node that kernels compute; 0 for others.
  std::vector<int64_t> lanes_;
  std::map<NodeId, HalfTurn> turns_;
  std::vector<uint32_t> unit_of_;
  std::vector<Unit> units_;
  // By node: the last merge in which it was inside, and the last one whose paths visited it.
  std::vector<uint32_t> inside_;
  std::vector<uint32_t> visited_;
  uint32_t merge_ = 0;
  // For MakesCycle and InputCount, which empty them.
  std::vector<NodeId> open_;
  std::vector<ValueId> inputs_;
};

// Whether one kernel computes this norm or its gradient row by row.
bool IsRowNorm(const Graph& graph, NodeId node);
// The number of elements of a row.
int64_t RowWidth(const Graph& graph, NodeId norm);

}  // namespace heddle
