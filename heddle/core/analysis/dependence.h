// Which collectives depend on which: the exact answer for every pair.
//
// The ancestors of a collective are the collectives that it depends on. They are kept as intervals of numbers, which come from
// a tree of all collectives, in postorder. The parent of a collective is the next one that needs it. If several do, it is the
// one with the most collectives on its way to the end of the graph. A collective depends on everything below it in the tree,
// and that is one interval. In a training step one long path runs through everything, so a collective has a handful of
// intervals however many layers there are: time and memory are linear in the nodes, and a question is a binary search.
//
// Some graphs need many intervals for each collective. The analysis gives up after looking at kWorkPerNode intervals for each
// node. From then on a question is a search through the nodes between the two collectives. So time and memory of the analysis
// are linear for any graph, but in the worst case a question is linear as well.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle {

class CollectiveDependence {
 public:
  explicit CollectiveDependence(const Graph& graph);

  // The nodes that start a collective, in execution order.
  const std::vector<NodeId>& collectives() const { return collectives_; }
  // Whether collective `later` needs a result of collective `earlier`, through any path. Both are places in collectives().
  bool Depends(size_t later, size_t earlier) const;
  bool Independent(size_t a, size_t b) const { return a < b ? !Depends(b, a) : !Depends(a, b); }

  // Whether questions are answered from intervals.
  bool is_indexed() const { return producers_.empty(); }
  // How many intervals were made, for collectives and for the nodes between them.
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
  // By collective: its number, and where in `intervals_` those of its ancestors begin and end.
  std::vector<uint32_t> number_;
  std::vector<std::pair<uint32_t, uint32_t>> range_;
  std::vector<Interval> intervals_;
  // By node: the nodes that make its operands. Only if there are no intervals.
  std::vector<std::vector<NodeId>> producers_;
};

}  // namespace heddle
