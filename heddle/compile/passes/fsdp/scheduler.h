// Scheduler: a new order of the nodes of a graph, in which several launches may become one.
//
// Every node has a wish where to stand, at first its own place. The order is the one that keeps all dependence and, of the nodes
// that may come next, always takes the one that wishes to stand first. So wishes never make a cycle: a node that cannot have its
// place gets the next that it can have. Buckets can make one, though none of their members depends on another: two launches
// behind two others, crosswise. Buckets on a cycle come apart again.
//
// Dependence is what a node reads, what an update takes over, and the sequence of random ops. Cost is n log n.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle::compile {

// One node must come before another.
struct OrderEdge {
  uint32_t from;
  uint32_t to;
};
// All dependence of a graph: what nodes read, what updates take over, the sequence of random ops.
std::vector<OrderEdge> OrderEdges(const Graph& graph);

class Scheduler {
 public:
  explicit Scheduler(const Graph& graph);

  // In front of the place that `anchor` has now, or behind it. Among equals, the present order stays. False if the node wishes to
  // stand there, or further in that direction, already.
  bool WishBefore(NodeId node, NodeId anchor) {
    uint64_t wish = Key(anchor, 0);
    return wish < wish_[node.index()] && (wish_[node.index()] = wish, true);
  }
  bool WishAfter(NodeId node, NodeId anchor) {
    uint64_t wish = Key(anchor, 2);
    return wish > wish_[node.index()] && (wish_[node.index()] = wish, true);
  }

  // Launches that become one, and their waits. The launch wishes to stand where `launch_at` is, the wait where the first wait is.
  void AddBucket(std::vector<NodeId> launches, std::vector<NodeId> waits, NodeId launch_at);

  // The new order. Of a bucket, it has the first launch and the first wait of those given; the other members are left out.
  std::vector<NodeId> Run();
  // After Run: whether a bucket, by the order in which they were added, is still one.
  bool holds(size_t bucket) const { return !buckets_[bucket].dissolved; }

 private:
  static uint64_t Key(NodeId at, uint64_t side) { return uint64_t{at.index()} * 3 + side; }

  struct Bucket {
    std::vector<NodeId> launches;
    std::vector<NodeId> waits;
    bool dissolved = false;
  };
  struct Ready {
    uint64_t wish;
    uint32_t node;
    auto operator<=>(const Ready&) const = default;
  };
  void SortEdges();
  uint32_t Leader(uint32_t node) const { return leader_[node]; }
  void CountOpen();
  void Push(uint32_t node) { heap_.push_back({wish_[node], node}); }
  void Emit(std::vector<NodeId>& order);
  // Takes the buckets of one cycle apart.
  void BreakCycle();
  void Dissolve(size_t bucket);

  const Graph& graph_;
  std::vector<uint64_t> wish_;
  std::vector<Bucket> buckets_;
  // By node: the first member of its bucket, or itself; and the bucket, or kNoBucket.
  static constexpr uint32_t kNoBucket = UINT32_MAX;
  std::vector<uint32_t> leader_;
  std::vector<uint32_t> bucket_of_;
  // Nodes that must come later, by node, one behind the other.
  std::vector<OrderEdge> edges_;
  std::vector<uint32_t> first_edge_;
  // By leader: how many edges into it are still open.
  std::vector<uint32_t> open_;
  std::vector<bool> done_;
  // A heap, the smallest first.
  std::vector<Ready> heap_;
};

}  // namespace heddle::compile
