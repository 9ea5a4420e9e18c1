// Compares flows with all cuts of small networks, and checks certificates for large ones.
#include "heddle/core/analysis/max_flow.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

namespace heddle {
namespace {

struct Edge {
  size_t from;
  size_t to;
  int64_t capacity;
};

std::vector<Edge> RandomEdges(std::mt19937& random, size_t nodes, size_t count, int infinite) {
  std::vector<Edge> edges;
  for (size_t i = 0; i < count; ++i) {
    int64_t capacity = static_cast<int>(random() % 100) < infinite
                           ? MaxFlow::kInfinite
                           : static_cast<int64_t>(random() % 20);
    edges.push_back({random() % nodes, random() % nodes, capacity});
  }
  return edges;
}

MaxFlow MakeNetwork(size_t nodes, const std::vector<Edge>& edges) {
  MaxFlow flow;
  for (size_t i = 0; i < nodes; ++i) flow.AddNode();
  for (const Edge& edge : edges)
    flow.AddEdge(FlowNodeId(edge.from), FlowNodeId(edge.to), edge.capacity);
  return flow;
}

int64_t CutCapacity(const std::vector<Edge>& edges, const std::vector<bool>& source_side) {
  int64_t sum = 0;
  for (const Edge& edge : edges) {
    if (!source_side[edge.from] || source_side[edge.to]) continue;
    if (edge.capacity == MaxFlow::kInfinite) return MaxFlow::kInfinite;
    sum += edge.capacity;
  }
  return sum;
}

// From node 0 to the last node.
int64_t CheapestCut(size_t nodes, const std::vector<Edge>& edges) {
  int64_t best = MaxFlow::kInfinite;
  for (size_t bits = 0; bits < size_t{1} << (nodes - 2); ++bits) {
    std::vector<bool> side(nodes);
    side[0] = true;
    for (size_t n = 1; n + 1 < nodes; ++n) side[n] = (bits >> (n - 1) & 1) != 0;
    best = std::min(best, CutCapacity(edges, side));
  }
  return best;
}

// Checks a solution: flows fit the capacities and are conserved, and the cut costs the flow.
void ExpectCertificate(const MaxFlow& flow, size_t nodes, const std::vector<Edge>& edges,
                       int64_t value) {
  std::vector<int64_t> balance(nodes);
  for (size_t e = 0; e < edges.size(); ++e) {
    int64_t through = flow.Flow(FlowEdgeId(e));
    EXPECT_GE(through, 0);
    EXPECT_LE(through, edges[e].capacity);
    balance[edges[e].from] -= through;
    balance[edges[e].to] += through;
  }
  EXPECT_EQ(balance[0], -value);
  EXPECT_EQ(balance[nodes - 1], value);
  for (size_t n = 1; n + 1 < nodes; ++n) EXPECT_EQ(balance[n], 0) << n;
  std::vector<bool> not_sink_side;
  for (size_t n = 0; n < nodes; ++n) {
    not_sink_side.push_back(!flow.OnSinkSide(FlowNodeId(n)));
  }
  EXPECT_EQ(CutCapacity(edges, not_sink_side), value);
}

TEST(MaxFlow, EqualsTheCheapestOfAllCuts) {
  std::mt19937 random(1);
  int infinite_cuts = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    size_t nodes = 2 + random() % 7;
    std::vector<Edge> edges = RandomEdges(random, nodes, random() % 25, 20);
    MaxFlow flow = MakeNetwork(nodes, edges);
    int64_t value = flow.Solve(FlowNodeId(0), FlowNodeId(nodes - 1));
    ASSERT_EQ(value, CheapestCut(nodes, edges)) << "trial " << trial;
    if (value == MaxFlow::kInfinite) {
      ++infinite_cuts;
    } else {
      ExpectCertificate(flow, nodes, edges, value);
    }
  }
  EXPECT_GT(infinite_cuts, 100);
}

TEST(MaxFlow, LargeNetworksHaveACertificate) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 20; ++trial) {
    size_t nodes = 500 + random() % 500;
    std::vector<Edge> edges = RandomEdges(random, nodes, 5 * nodes, 1);
    MaxFlow flow = MakeNetwork(nodes, edges);
    int64_t value = flow.Solve(FlowNodeId(0), FlowNodeId(nodes - 1));
    ASSERT_NE(value, MaxFlow::kInfinite);
    ExpectCertificate(flow, nodes, edges, value);
  }
}

TEST(MaxFlow, TakesTheCutNearestToTheSink) {
  // 0 -> 1 -> 2 -> 3 with equal capacities: every edge is a minimum cut.
  MaxFlow flow = MakeNetwork(4, {{0, 1, 5}, {1, 2, 5}, {2, 3, 5}});
  EXPECT_EQ(flow.Solve(FlowNodeId(0), FlowNodeId(3)), 5);
  EXPECT_FALSE(flow.OnSinkSide(FlowNodeId(2)));
  EXPECT_TRUE(flow.OnSinkSide(FlowNodeId(3)));
}

TEST(MaxFlow, SolvesAgainAfterChanges) {
  MaxFlow flow = MakeNetwork(3, {{0, 1, 5}, {1, 2, 3}});
  EXPECT_EQ(flow.Solve(FlowNodeId(0), FlowNodeId(2)), 3);
  flow.AddEdge(FlowNodeId(1), FlowNodeId(2), MaxFlow::kInfinite);
  EXPECT_EQ(flow.Solve(FlowNodeId(0), FlowNodeId(2)), 5);
  flow.AddEdge(FlowNodeId(0), FlowNodeId(1), MaxFlow::kInfinite);
  EXPECT_EQ(flow.Solve(FlowNodeId(0), FlowNodeId(2)), MaxFlow::kInfinite);
}

TEST(MaxFlow, TakesLargeCapacitiesAndLongChains) {
  constexpr int64_t kLarge = int64_t{1} << 61;
  MaxFlow flow;
  FlowNodeId source = flow.AddNode();
  FlowNodeId last = source;
  for (int i = 0; i < 200'000; ++i) {
    FlowNodeId next = flow.AddNode();
    flow.AddEdge(last, next, MaxFlow::kInfinite);
    last = next;
  }
  FlowNodeId sink = flow.AddNode();
  flow.AddEdge(last, sink, kLarge);
  EXPECT_EQ(flow.Solve(source, sink), kLarge);
  EXPECT_FALSE(flow.OnSinkSide(last));
}

}  // namespace
}  // namespace heddle
