#include "heddle/compile/passes/fsdp/scheduler.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "heddle/core/ir/storage.h"

namespace heddle::compile {

Scheduler::Scheduler(const Graph& graph)
    : graph_(graph),
      preferred_(graph.node_count()),
      leader_(graph.node_count()),
      bucket_of_(graph.node_count(), kNoBucket),
      done_(graph.node_count()) {
  for (NodeId id : graph.nodes()) preferred_[id.index()] = Key(id, 1);
  std::iota(leader_.begin(), leader_.end(), 0);
}

void Scheduler::AddBucket(std::vector<NodeId> launches, std::vector<NodeId> waits,
                          NodeId launch_at) {
  auto number = static_cast<uint32_t>(buckets_.size());
  for (const std::vector<NodeId>* side : {&launches, &waits}) {
    for (NodeId id : *side) {
      leader_[id.index()] = (*side)[0].index();
      bucket_of_[id.index()] = number;
    }
  }
  preferred_[launches[0].index()] = Key(launch_at, 1);
  preferred_[waits[0].index()] = Key(*std::ranges::min_element(waits), 1);
  buckets_.push_back({std::move(launches), std::move(waits)});
}

std::vector<OrderEdge> OrderEdges(const Graph& graph) {
  std::vector<OrderEdge> edges;
  BufferDonations donations(graph);
  NodeId random;
  for (NodeId id : graph.nodes()) {
    for (ValueId v : graph.operands(id)) {
      NodeId producer = v ? graph[v].producer : NodeId();
      if (producer) edges.push_back({producer.index(), id.index()});
    }
    if (donations.any()) {
      ForEachRead(graph, id, [&](ValueId v) {
        NodeId taker = donations.taker(v);
        if (taker && id < taker) edges.push_back({id.index(), taker.index()});
      });
    }
    Effect effect = graph.op(id).effect();
    if (effect != Effect::kRandom && effect != Effect::kOpaque) continue;
    if (random) edges.push_back({random.index(), id.index()});
    random = id;
  }
  return edges;
}

void Scheduler::SortEdges() {
  first_edge_.assign(graph_.node_count() + 1, 0);
  for (const OrderEdge& edge : edges_) ++first_edge_[edge.from + 1];
  std::partial_sum(first_edge_.begin(), first_edge_.end(), first_edge_.begin());
  std::vector<OrderEdge> sorted(edges_.size());
  std::vector<uint32_t> next(first_edge_.begin(), first_edge_.end() - 1);
  for (const OrderEdge& edge : edges_) sorted[next[edge.from]++] = edge;
  edges_ = std::move(sorted);
}

void Scheduler::CountOpen() {
  open_.assign(graph_.node_count(), 0);
  for (const OrderEdge& edge : edges_) {
    if (!done_[edge.from]) ++open_[Leader(edge.to)];
  }
}

std::vector<NodeId> Scheduler::Run() {
  edges_ = OrderEdges(graph_);
  SortEdges();
  CountOpen();
  std::vector<NodeId> order;
  order.reserve(graph_.node_count());
  for (uint32_t n = 0; n < graph_.node_count(); ++n) {
    if (Leader(n) == n && open_[n] == 0) Push(n);
  }
  std::ranges::make_heap(heap_, std::greater<>());
  for (;;) {
    Emit(order);
    if (std::ranges::all_of(done_, std::identity())) return order;
    BreakCycle();
  }
}

void Scheduler::Emit(std::vector<NodeId>& order) {
  while (!heap_.empty()) {
    std::ranges::pop_heap(heap_, std::greater<>());
    uint32_t node = heap_.back().node;
    heap_.pop_back();
    order.push_back(NodeId(node));
    std::span<const NodeId> members;
    NodeId single(node);
    uint32_t bucket = bucket_of_[node];
    if (bucket == kNoBucket || buckets_[bucket].dissolved) {
      members = {&single, 1};
    } else {
      const Bucket& b = buckets_[bucket];
      members = b.launches[0].index() == node ? b.launches : b.waits;
    }
    for (NodeId member : members) {
      done_[member.index()] = true;
      for (uint32_t e = first_edge_[member.index()]; e < first_edge_[member.index() + 1]; ++e) {
        uint32_t to = Leader(edges_[e].to);
        if (--open_[to] > 0) continue;
        Push(to);
        std::ranges::push_heap(heap_, std::greater<>());
      }
    }
  }
}

// Walks back from a node that cannot run to a node it depends on, until a node repeats.
void Scheduler::BreakCycle() {
  std::vector<uint32_t> before(graph_.node_count(), UINT32_MAX);
  for (const OrderEdge& edge : edges_) {
    if (!done_[edge.from]) before[Leader(edge.to)] = Leader(edge.from);
  }
  auto at = static_cast<uint32_t>(std::ranges::find(done_, false) - done_.begin());
  at = Leader(at);
  std::vector<bool> seen(graph_.node_count());
  while (!seen[at]) {
    seen[at] = true;
    at = before[at];
    HEDDLE_CHECK(at != UINT32_MAX, "a node that waits for nothing cannot run");
  }
  bool broken = false;
  for (uint32_t end = at;;) {
    uint32_t bucket = bucket_of_[at];
    if (bucket != kNoBucket && !buckets_[bucket].dissolved) {
      Dissolve(bucket);
      broken = true;
    }
    at = before[at];
    if (at == end) break;
  }
  HEDDLE_CHECK(broken, "a graph has a cycle of its own");
  CountOpen();
  heap_.clear();
  for (uint32_t n = 0; n < graph_.node_count(); ++n) {
    if (!done_[n] && Leader(n) == n && open_[n] == 0) Push(n);
  }
  std::ranges::make_heap(heap_, std::greater<>());
}

// A member that is separate again prefers its original position.
void Scheduler::Dissolve(size_t bucket) {
  buckets_[bucket].dissolved = true;
  for (const std::vector<NodeId>* side : {&buckets_[bucket].launches, &buckets_[bucket].waits}) {
    for (NodeId id : *side) {
      leader_[id.index()] = id.index();
      preferred_[id.index()] = Key(id, 1);
    }
  }
}

}  // namespace heddle::compile
