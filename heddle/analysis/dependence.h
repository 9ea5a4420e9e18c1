// Which collectives depend on which: the exact answer for every pair.
//
// The collectives that one depends on are kept as intervals of numbers. The numbers come from a tree, in postorder: the parent of a
// collective is the next one that needs it, and where several do, the one with the longest way to the end of the graph. What is
// below a collective in the tree is one interval, and the collective depends on all of it. In a training step nearly everything
// lies along one long way: a collective has a handful of intervals, however many layers there are, and time and memory are linear
// in the nodes.
//
// A graph can be made for which that fails. Once more than kWorkPerNode intervals for each node were looked at, none are kept, and a
// question is a search through the nodes between two collectives: making this stays linear, a question is linear, too.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/ir/graph.h"

namespace heddle {

class CollectiveDependence {
 public:
  explicit CollectiveDependence(const Graph& graph);

  // The nodes that start a collective, in execution order.
  const std::vector<NodeId>& collectives() const { return collectives_; }
  // Whether collective `later` needs, through any path, a result of collective `earlier`. Both count in collectives().
  bool Depends(size_t later, size_t earlier) const;
  bool Independent(size_t a, size_t b) const { return a < b ? !Depends(b, a) : !Depends(a, b); }

  // Whether there are intervals, so that a question is a binary search among those of one collective.
  bool is_indexed() const { return producers_.empty(); }
  // All that were made, for collectives and for what lies between them.
  size_t interval_count() const { return intervals_.size(); }

  // Numbers from `begin` up to, not including, `end`.
  struct Interval {
    uint32_t begin;
    uint32_t end;
    bool operator==(const Interval&) const = default;
  };
  static constexpr size_t kWorkPerNode = 32;

 private:
  bool Search(NodeId later, NodeId earlier) const;

  std::vector<NodeId> collectives_;
  // By collective: its number, and its intervals, which lie between these two places in `intervals_`.
  std::vector<uint32_t> number_;
  std::vector<std::pair<uint32_t, uint32_t>> range_;
  std::vector<Interval> intervals_;
  // Where there are no intervals: by node, those that make its operands.
  std::vector<std::vector<NodeId>> producers_;
};

}  // namespace heddle
