// Analyses against plain definitions, on random graphs.
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "heddle/core/analysis/cache.h"
#include "heddle/core/analysis/dependence.h"
#include "heddle/core/analysis/memory.h"
#include "heddle/core/analysis/uses.h"
#include "heddle/core/ir/edit/rewriter.h"
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

// The nodes that a node needs, through any path.
std::set<NodeId> Ancestors(const Graph& graph, NodeId node) {
  std::set<NodeId> ancestors;
  std::vector<NodeId> open{node};
  while (!open.empty()) {
    NodeId id = open.back();
    open.pop_back();
    for (ValueId v : graph.operands(id)) {
      NodeId producer = graph[v].producer;
      if (producer && ancestors.insert(producer).second) open.push_back(producer);
    }
  }
  return ancestors;
}

void ExpectReachability(const Graph& graph, const CollectiveDependence& dependence, size_t stride) {
  const std::vector<NodeId>& all = dependence.collectives();
  for (size_t later = 0; later < all.size(); later += stride) {
    std::set<NodeId> ancestors = Ancestors(graph, all[later]);
    for (size_t earlier = 0; earlier < all.size(); ++earlier)
      ASSERT_EQ(dependence.Depends(later, earlier), ancestors.contains(all[earlier]))
          << later << " of " << earlier;
  }
}

TEST(Dependence, IsReachability) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    Module module = RandomModule(seed, 20 + 10 * seed);
    CollectiveDependence dependence(module.graphs[0]);
    EXPECT_TRUE(dependence.is_indexed());
    ExpectReachability(module.graphs[0], dependence, 1);
  }
}

// Collectives that depend on nothing, and as many more that each depend on a hundred of them at random. No numbering turns
// their ancestors into few intervals.
std::string Tangle(uint32_t seed) {
  std::mt19937 random(seed);
  std::string body;
  for (int i = 0; i < 400; ++i)
    body += fmt::format(
        "%a{0}! = comm.all_reduce(%x, over=[dp], why=grad)\n%a{0} = comm.wait(%a{0}!)\n", i);
  for (int i = 0; i < 400; ++i) {
    std::string some;
    for (int j = 0; j < 100; ++j) some += fmt::format("{}%a{}", j == 0 ? "" : ", ", random() % 400);
    body += fmt::format(
        "%s{0} = aten.stack([{1}])\n%b{0}! = comm.all_reduce(%s{0}, over=[dp], why=grad)\n"
        "%b{0} = comm.wait(%b{0}!)\n",
        i, some);
  }
  return fmt::format("heddle 1 local\nmesh [dp=2]\ngraph @g(%x: f32[8]) -> () {{\n{}}}\n", body);
}

TEST(Dependence, IsReachabilityWhereIntervalsWouldBeTooMany) {
  for (uint32_t seed = 0; seed < 4; ++seed) {
    Result<Module> module = ParseModule(Tangle(seed), "tangle", Ops());
    ASSERT_TRUE(module.ok()) << Format(module.diagnostics());
    CollectiveDependence dependence(module->graphs[0]);
    ASSERT_EQ(dependence.collectives().size(), 800u);
    EXPECT_FALSE(dependence.is_indexed());
    EXPECT_EQ(dependence.interval_count(), 0u);
    ExpectReachability(module->graphs[0], dependence, 7);
  }
}

// A step in the shape of FSDP: gathers of parameters, which depend on nothing; gradients, on which only their norm at the end
// depends.
struct StepShape {
  // Collectives that all lie on one path.
  bool tensor_parallel = false;
  // All gathers of forward start first.
  bool prefetch = false;
  // Backward gathers again.
  bool reshard = false;
};

std::string TrainingStep(int layers, StepShape shape) {
  std::string inputs = "%x0: f32[8,8]";
  std::string gathers;
  std::string body;
  std::string sums;
  for (int i = 0; i < layers; ++i) {
    inputs += fmt::format(", %w{}: f32[4,8]", i);
    (shape.prefetch ? gathers : body) +=
        fmt::format("%f{0}! = comm.all_gather(%w{0}, over=[dp], why=unshard)\n", i);
    body += fmt::format("%f{0} = comm.wait(%f{0}!)\n%y{0} = aten.mm(%x{0}, %f{0})\n", i);
    if (shape.tensor_parallel)
      body += fmt::format("%s{0}! = comm.all_reduce(%y{0}, over=[tp], why=tensor)\n", i) +
              fmt::format("%s{0} = comm.wait(%s{0}!)\n", i);
    body += fmt::format("%x{} = aten.add.Tensor(%x{}, %{}{})\n", i + 1, i,
                        shape.tensor_parallel ? "s" : "y", i);
  }
  body += fmt::format("%g{0} = aten.neg(%x{0})\n", layers);
  for (int i = layers - 1; i >= 0; --i) {
    if (shape.reshard)
      body += fmt::format("%b{0}! = comm.all_gather(%w{0}, over=[dp], why=unshard)\n", i) +
              fmt::format("%b{0} = comm.wait(%b{0}!)\n", i);
    body += fmt::format(
        "%d{0} = aten.mm(%x{0}, %g{1})\n"
        "%r{0}! = comm.reduce_scatter(%d{0}, over=[dp], why=grad)\n%r{0} = comm.wait(%r{0}!)\n"
        "%n{0} = aten.sum(%r{0})\n%h{0} = aten.mm(%g{1}, %{2}{0})\n",
        i, i + 1, shape.reshard ? "b" : "f");
    std::string grad = fmt::format("%h{}", i);
    if (shape.tensor_parallel) {
      body += fmt::format("%t{0}! = comm.all_reduce(%h{0}, over=[tp], why=tensor)\n", i) +
              fmt::format("%t{0} = comm.wait(%t{0}!)\n", i);
      grad = fmt::format("%t{}", i);
    }
    body += fmt::format("%g{} = aten.add.Tensor(%g{}, {})\n", i, i + 1, grad);
    sums += fmt::format("{}%n{}", sums.empty() ? "" : ", ", i);
  }
  body += fmt::format(
      "%all = aten.stack([{}])\n%n! = comm.all_reduce(%all, over=[dp], why=norm)\n"
      "%n = comm.wait(%n!)\n",
      sums);
  return fmt::format("heddle 1 local\nmesh [dp=2,tp=2]\ngraph @g({}) -> (%n, %g0) {{\n{}{}}}\n",
                     inputs, gathers, body);
}

TEST(Dependence, HasAsManyIntervalsForALayerHoweverManyLayersThereAre) {
  for (int bits = 0; bits < 8; ++bits) {
    StepShape shape{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
    size_t few = 0;
    for (int layers : {10, 100}) {
      Result<Module> module = ParseModule(TrainingStep(layers, shape), "step", Ops());
      ASSERT_TRUE(module.ok()) << Format(module.diagnostics());
      CollectiveDependence dependence(module->graphs[0]);
      EXPECT_TRUE(dependence.is_indexed());
      ExpectReachability(module->graphs[0], dependence, 1);
      if (layers == 10) few = dependence.interval_count();
      EXPECT_LT(dependence.interval_count(), 11 * few) << bits;
    }
  }
}

TEST(Dependence, OneNodeThatNeedsEverything) {
  std::string body;
  std::string all;
  for (int i = 0; i < 400; ++i) {
    body += fmt::format(
        "%a{0}! = comm.all_reduce(%x, over=[dp], why=grad)\n%a{0} = comm.wait(%a{0}!)\n", i);
    all += fmt::format("{}%a{}", i == 0 ? "" : ", ", i);
  }
  std::string text = fmt::format(
      "heddle 1 local\nmesh [dp=2]\ngraph @g(%x: f32[8]) -> (%b) {{\n{}%s = aten.stack([{}])\n"
      "%b! = comm.all_reduce(%s, over=[dp], why=grad)\n%b = comm.wait(%b!)\n}}\n",
      body, all);
  Result<Module> module = ParseModule(text, "all", Ops());
  ASSERT_TRUE(module.ok()) << Format(module.diagnostics());
  CollectiveDependence dependence(module->graphs[0]);
  EXPECT_TRUE(dependence.is_indexed());
  ExpectReachability(module->graphs[0], dependence, 1);
}

// The rules of docs/ir.md, applied node by node, without any of the shortcuts of the analysis.
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
          // What a collective reads, it reads until its wait.
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

void EraseOutput(Graph& graph) {
  Rewriter rewriter(graph);
  rewriter.EraseOutput(0);
  rewriter.Commit();
}

TEST(Cache, IsSharedByCopiesUntilOneIsEdited) {
  AnalysisCache cache;
  Module module = RandomModule(1, 60);
  const Uses& uses = cache.uses(module.graphs[0]);
  Module copy = module;
  EXPECT_EQ(&cache.uses(copy.graphs[0]), &uses);
  EraseOutput(copy.graphs[0]);
  EXPECT_NE(&cache.uses(copy.graphs[0]), &uses);
  EXPECT_EQ(&cache.uses(module.graphs[0]), &uses);
  EXPECT_EQ(cache.size(), 2u);
}

// Neither the address of a graph nor the number of its edits tells one state from another.
TEST(Cache, AnotherGraphInTheSamePlaceIsAnotherGraph) {
  AnalysisCache cache;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Module module = RandomModule(seed, 60);
    std::vector<Graph> graphs;
    graphs.push_back(module.graphs[0]);
    EXPECT_EQ(cache.memory(graphs[0]).live.size(), module.graphs[0].node_count());
    graphs.clear();
    module = RandomModule(seed + 100, 50);
    graphs.push_back(module.graphs[0]);
    EXPECT_EQ(cache.memory(graphs[0]).live.size(), module.graphs[0].node_count());
    graphs[0] = RandomModule(seed + 200, 40).graphs[0];
    EXPECT_EQ(cache.memory(graphs[0]).live.size(), graphs[0].node_count());
  }
}

TEST(Cache, DropsWhatNoGraphIs) {
  AnalysisCache cache;
  Module module = RandomModule(1, 60);
  const Uses& uses = cache.uses(module.graphs[0]);
  cache.DropStale();
  EXPECT_EQ(&cache.uses(module.graphs[0]), &uses);
  EraseOutput(module.graphs[0]);
  cache.DropStale();
  EXPECT_EQ(cache.size(), 0u);
}

}  // namespace
}  // namespace heddle
