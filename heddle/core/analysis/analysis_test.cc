// Compares the analyses with plain definitions, on random graphs.
#include <random>

#include <gtest/gtest.h>

#include "heddle/core/analysis/memory.h"
#include "heddle/core/analysis/uses.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ops/ops.h"

namespace heddle {
namespace {

Module RandomModule(uint32_t seed, size_t nodes) {
  std::mt19937 random(seed);
  auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  std::vector<std::string> values{"x"};
  std::vector<std::string> flying;
  std::string body;
  auto any = [&] { return "%" + values[pick(values.size())]; };
  for (size_t i = 0; i < nodes; ++i) {
    std::string name = fmt::format("v{}", i);
    switch (pick(5)) {
      case 0: body += fmt::format("%{} = aten.t({}) : f32[8,8]\n", name, any()); break;
      case 1: body += fmt::format("%{} = aten.mm({}, {}) : f32[8,8]\n", name, any(), any()); break;
      case 2: body += fmt::format("%{} = aten.exp({}) : f32[8,8]\n", name, any()); break;
      case 3:
        body += fmt::format("%{}! = comm.all_reduce({}, over=[dp], why=grad) : async f32[8,8]\n",
                            name, any());
        flying.push_back(name);
        continue;
      default: {
        if (flying.empty()) continue;
        size_t at = pick(flying.size());
        name = flying[at];
        flying.erase(flying.begin() + static_cast<ptrdiff_t>(at));
        body += fmt::format("%{0} = comm.wait(%{0}!) : f32[8,8]\n", name);
      }
    }
    values.push_back(name);
  }
  for (const std::string& name : flying)
    body += fmt::format("%{0} = comm.wait(%{0}!) : f32[8,8]\n", name);
  std::string text = fmt::format(
      "heddle 1 local\nmesh [dp=2]\ngraph @g(%x: f32[8,8]) -> ({}) {{\n{}}}\n", any(), body);
  Result<Module> module = ParseModule(text, "random", Ops());
  EXPECT_TRUE(module.ok()) << Format(module.diagnostics());
  return *module;
}

TEST(Uses, AreAllUsesInOrder) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    Module module = RandomModule(seed, 60);
    const Graph& graph = module.graphs[0];
    Uses uses(graph);
    for (ValueId value : graph.values()) {
      std::vector<std::pair<uint32_t, uint32_t>> expected;
      for (NodeId id : graph.nodes()) {
        for (uint32_t i = 0; i < graph.operands(id).size(); ++i) {
          if (graph.operands(id)[i] == value) expected.emplace_back(id.index(), i);
        }
      }
      std::vector<std::pair<uint32_t, uint32_t>> got;
      for (const Use& use : uses.of(value)) got.emplace_back(use.node.index(), use.operand);
      EXPECT_EQ(got, expected);
      EXPECT_EQ(uses.is_output(value), graph.outputs()[0].value == value);
    }
  }
}

// The rules of docs/ir.md, applied node by node, without the shortcuts of the analysis.
TEST(Memory, FollowsTheRules) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    Module module = RandomModule(seed, 60);
    const Graph& graph = module.graphs[0];
    // The value that owns each value's storage: views and waits lead to it.
    auto owner = [&](ValueId v) {
      while (graph[v].producer) {
        NodeId id = graph[v].producer;
        if (graph.op(id).effect() != Effect::kView && graph[id].op != op::comm_wait) break;
        v = graph.operands(id)[0];
      }
      return v;
    };
    size_t n = graph.node_count();
    std::vector<int64_t> live(n, 0);
    for (ValueId v : graph.values()) {
      if (owner(v) != v) continue;
      size_t first = graph[v].producer ? graph[v].producer.index() : 0;
      size_t last = graph[v].producer ? first : n - 1;
      auto reach = [&](ValueId user) {
        if (owner(user) == v && graph[user].producer)
          last = std::max<size_t>(last, graph[user].producer.index());
      };
      for (ValueId user : graph.values()) reach(user);
      Uses uses(graph);
      for (NodeId id : graph.nodes()) {
        for (ValueId operand : graph.operands(id)) {
          if (owner(operand) != v) continue;
          last = std::max<size_t>(last, id.index());
          // A collective reads its operands until its wait.
          if (graph.op(id).effect() != Effect::kComm || graph[id].op == op::comm_wait) continue;
          for (const Use& use : uses.of(graph[id].first_result))
            last = std::max<size_t>(last, use.node.index());
        }
      }
      if (owner(graph.outputs()[0].value) == v) last = n - 1;
      for (size_t i = first; i <= last; ++i) live[i] += 8 * 8 * 4;
    }
    MemoryTimeline timeline = ComputeMemoryTimeline(graph, Liveness(graph));
    for (size_t i = 0; i < n; ++i)
      EXPECT_EQ(timeline.live[i].value, live[i]) << "seed " << seed << " node " << i;
    EXPECT_EQ(timeline.peak.value, *std::max_element(live.begin(), live.end()));
    Bytes alive;
    Liveness liveness(graph);
    for (StorageId id : timeline.alive_at_peak) alive += liveness.storages()[id].bytes;
    EXPECT_EQ(alive, timeline.peak);
  }
}

}  // namespace
}  // namespace heddle
