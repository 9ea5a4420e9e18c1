// Scheduler: computes a new node order in which several launches may be merged into one.
//
// Every node has a preferred position, initially its own. Among all nodes whose dependences are
// scheduled, the next one is always the node with the earliest preferred position. Preferences
// therefore never create cycles: a node that cannot have its position gets the next possible one.
// Buckets can create cycles even if their members are independent, such as two launches that depend
// crosswise on two others. Buckets on a cycle are taken apart.
//
// Dependences are operands, updates of storages, and the order of random ops. The schedule takes
// O(n log n) time.
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
// All dependences of a graph: operands, updates of storages, and the order of random ops.
std::vector<OrderEdge> OrderEdges(const Graph& graph);

class Scheduler {
 public:
  explicit Scheduler(const Graph& graph);

  // Prefers the position before the current position of `anchor`, or after it. Equal preferences
  // keep the current order. Returns false if the node already prefers that position or one further
  // in that direction.
  bool PreferBefore(NodeId node, NodeId anchor) {
    uint64_t preferred = Key(anchor, 0);
    return preferred < preferred_[node.index()] && (preferred_[node.index()] = preferred, true);
  }
  bool PreferAfter(NodeId node, NodeId anchor) {
    uint64_t preferred = Key(anchor, 2);
    return preferred > preferred_[node.index()] && (preferred_[node.index()] = preferred, true);
  }

  // Merges launches into one, and their waits into one. The launch prefers the position of
  // `launch_at`, the wait that of the first wait.
  void AddBucket(std::vector<NodeId> launches, std::vector<NodeId> waits, NodeId launch_at);

  // Returns the new order. For a bucket, it contains the first launch and the first wait as given,
  // and no other members.
  std::vector<NodeId> Run();
  // After Run: whether a bucket is still merged. Buckets are numbered in the order of AddBucket.
  bool holds(size_t bucket) const { return !buckets_[bucket].dissolved; }

 private:
  static uint64_t Key(NodeId at, uint64_t side) { return uint64_t{at.index()} * 3 + side; }

  struct Bucket {
    std::vector<NodeId> launches;
    std::vector<NodeId> waits;
    bool dissolved = false;
  };
  struct Ready {
    uint64_t preferred;
    uint32_t node;
    auto operator<=>(const Ready&) const = default;
  };
  void SortEdges();
  uint32_t Leader(uint32_t node) const { return leader_[node]; }
  void CountOpen();
  void Push(uint32_t node) { heap_.push_back({preferred_[node], node}); }
  void Emit(std::vector<NodeId>& order);
  // Takes the buckets of one cycle apart.
  void BreakCycle();
  void Dissolve(size_t bucket);

  const Graph& graph_;
  std::vector<uint64_t> preferred_;
  std::vector<Bucket> buckets_;
  // Indexed by node: the first member of its bucket, or itself; and the bucket, or kNoBucket.
  static constexpr uint32_t kNoBucket = UINT32_MAX;
  std::vector<uint32_t> leader_;
  std::vector<uint32_t> bucket_of_;
  // Edges grouped by their first node.
  std::vector<OrderEdge> edges_;
  std::vector<uint32_t> first_edge_;
  // Indexed by first member: the number of unscheduled predecessors.
  std::vector<uint32_t> open_;
  std::vector<bool> done_;
  // A min-heap.
  std::vector<Ready> heap_;
};

}  // namespace heddle::compile
