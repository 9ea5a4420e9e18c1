// The simulator on random graphs: compared with plain definitions and with itself, and checked for
// invariants.
#include <algorithm>

#include <gtest/gtest.h>

#include "heddle/core/analysis/memory.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ir/text/parse.h"
#include "heddle/core/ops/ops.h"
#include "heddle/price/sim/explain/bounds.h"
#include "heddle/price/sim/explain/critical_path.h"
#include "heddle/price/sim/explain/reasons.h"
#include "heddle/price/sim/test/random_graph.h"
#include "heddle/price/sim/timeline/replay.h"

namespace heddle::price {
namespace {

struct Case {
  Module module;
  GraphCosts costs;
  SimOptions options;

  const Graph& graph() const { return module.graphs[0]; }
};

Case RandomCase(uint32_t seed, size_t nodes) {
  Result<Module> module = ParseModule(RandomGraphText(seed, nodes), "random", Ops());
  EXPECT_TRUE(module.ok()) << Format(module.diagnostics());
  static const CostModel model =
      *CostModel::Make(*ParseCluster(kSmallCluster, "small.json"), CostOptions{});
  Result<GraphCosts> costs = model.Price(*module, module->graphs[0]);
  EXPECT_TRUE(costs.ok()) << Format(costs.diagnostics());
  SimOptions options;
  options.slowdown = seed % 3 == 0 ? 250 : 0;
  options.share_links = seed % 5 != 0;
  return {*std::move(module), *std::move(costs), options};
}

// Shuffles nodes within a range, each after its dependences.
std::vector<NodeId> Shuffled(const Graph& graph, std::vector<NodeId> nodes, uint32_t seed) {
  std::mt19937 random(seed);
  for (size_t round = 0; round < 4 * nodes.size(); ++round) {
    if (nodes.size() < 2) break;
    size_t i = random() % (nodes.size() - 1);
    bool needs = false;
    for (ValueId value : graph.operands(nodes[i + 1]))
      needs |= value && graph[value].producer == nodes[i];
    if (!needs) std::swap(nodes[i], nodes[i + 1]);
  }
  return nodes;
}

TEST(Timeline, PropertiesOfAThousandGraphs) {
  size_t exposed = 0;
  size_t shared = 0;
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    Case c = RandomCase(seed, 20 + seed % 200);
    SimGraph sim(c.graph(), c.costs);
    Timeline t = MakeTimeline(sim, c.options);
    MemoryTimeline memory = ComputeMemoryTimeline(c.graph(), Liveness(c.graph()));
    ASSERT_EQ(t.peak, memory.peak) << "seed " << seed;
    ASSERT_EQ(t.live, memory.live) << "seed " << seed;
    ASSERT_EQ(t.exposed + t.compute.busy, t.makespan) << "seed " << seed;
    if (c.options.slowdown == 0) {
      ASSERT_EQ(t.compute.busy, sim.compute());
    }
    LowerBounds bounds = FindLowerBounds(c.graph(), sim, t);
    ASSERT_LE(bounds.compute, t.makespan) << "seed " << seed;
    ASSERT_LE(bounds.stream, t.makespan) << "seed " << seed;
    ASSERT_LE(bounds.path, t.makespan) << "seed " << seed;
    ASSERT_LE(bounds.windows, t.makespan) << "seed " << seed;
    CriticalPath path = FindCriticalPath(sim, t);
    ASSERT_EQ(path.compute + path.collective, t.makespan) << "seed " << seed;
    Nanos at;
    for (const PathStep& step : path.steps) {
      ASSERT_EQ(step.begin, at) << "seed " << seed;
      at = step.end;
    }
    std::vector<Exposure> why = ExplainExposure(c.graph(), sim, t, Bytes{memory.peak});
    for (size_t i = 0; i < why.size(); ++i) {
      Nanos sum;
      for (Nanos part : why[i].by_reason) sum += part;
      ASSERT_EQ(sum, t.collectives[i].exposed);
      ASSERT_GE(t.collectives[i].shared.value, 0);
      ASSERT_GE(t.collectives[i].queued.value, 0);
      if (!c.options.share_links) {
        ASSERT_EQ(t.collectives[i].shared.value, 0);
      }
      exposed += t.collectives[i].exposed.value > 0;
      shared += t.collectives[i].shared.value > 0;
    }
  }
  // The random graphs must have exposed collectives.
  EXPECT_GT(exposed, 1000u);
  EXPECT_GT(shared, 1000u);
}

// The rules, nanosecond by nanosecond, without events, heaps or clocks.
struct Plain {
  std::vector<Nanos> end;
  Nanos makespan;
};
Plain StepByStep(const SimGraph& sim, const SimOptions& options) {
  Plain plain;
  plain.end.resize(sim.size(), Nanos{INT64_MAX});
  std::vector<std::vector<uint32_t>> queues(sim.streams().size());
  std::vector<double> left(sim.size());
  std::vector<double> before(sim.size());
  for (uint32_t i = 0; i < sim.size(); ++i) {
    left[i] = static_cast<double>(sim.tasks()[i].transfer.value);
    before[i] = static_cast<double>(sim.tasks()[i].before.value);
  }
  int64_t now = 0;
  // Advances all streams by one nanosecond.
  auto tick = [&] {
    int64_t on_node = 0;
    int64_t on_network = 0;
    for (const auto& queue : queues) {
      if (queue.empty() || before[queue[0]] > 0) continue;
      auto links = static_cast<int>(sim.tasks()[queue[0]].links);
      on_node += links & 1;
      on_network += links >> 1;
    }
    ++now;
    for (auto& queue : queues) {
      if (queue.empty()) continue;
      uint32_t task = queue[0];
      if (before[task] > 0) {
        before[task] -= 1;
      } else {
        auto links = static_cast<int>(sim.tasks()[task].links);
        int64_t sharing = 1;
        if ((links & 1) != 0) sharing = std::max(sharing, on_node);
        if ((links & 2) != 0) sharing = std::max(sharing, on_network);
        left[task] -= options.share_links ? 1.0 / static_cast<double>(sharing) : 1;
      }
      if (before[task] <= 0 && left[task] <= 1e-6) {
        plain.end[task] = {now};
        queue.erase(queue.begin());
      }
    }
  };
  auto busy = [&] {
    return std::ranges::any_of(queues, [](const auto& queue) { return !queue.empty(); });
  };
  for (uint32_t i = 0; i < sim.size(); ++i) {
    const Task& task = sim.tasks()[i];
    if (task.kind == Task::Kind::kStart) queues[task.stream].push_back(i);
    if (task.kind == Task::Kind::kWait && task.start != Task::kNone) {
      while (plain.end[task.start].value > now) tick();
    }
    double work = static_cast<double>(task.compute.value);
    while (work > 1e-6) {
      work -= busy() ? 1000.0 / (1000.0 + static_cast<double>(options.slowdown)) : 1;
      tick();
    }
    if (task.kind != Task::Kind::kStart) plain.end[i] = {now};
  }
  while (busy()) tick();
  plain.makespan = {now};
  return plain;
}

TEST(Timeline, IsWhatTheRulesSayNanosecondByNanosecond) {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    Case c = RandomCase(seed, 80);
    SimGraph sim(c.graph(), c.costs);
    Timeline t = MakeTimeline(sim, c.options);
    Plain plain = StepByStep(sim, c.options);
    // Each change of a share loses less than a nanosecond. There are not many more changes than
    // collectives.
    auto slack = static_cast<int64_t>(4 + 2 * t.collectives.size());
    if (c.options.slowdown == 0 && !c.options.share_links) slack = 0;
    EXPECT_NEAR(t.makespan.value, plain.makespan.value, slack) << "seed " << seed;
    for (size_t i = 0; i < sim.size(); ++i)
      EXPECT_NEAR(t.nodes[i].end.value, plain.end[i].value, slack)
          << "seed " << seed << " node " << i;
  }
}

// `heddle check` rejects this, but a graph may be simulated during an edit.
TEST(Timeline, WhatNobodyWaitsForShowsAtTheEnd) {
  Parsed parsed = ParseText(
      "heddle 1 local\nmesh [dp=2, tp=2]\ngraph @g(%x: f32[250]) -> (%z) {\n"
      "  %b! = comm.all_reduce(%x, over=[dp], why=tensor) : async f32[250]\n"
      "  %z = aten.exp(%x) : f32[250]\n}\n",
      "test", Ops());
  const Graph& graph = parsed.module.graphs[0];
  CostModel model = *CostModel::Make(*ParseCluster(kSmallCluster, "small.json"), {});
  GraphCosts costs = *model.Price(parsed.module, graph);
  // So slow that it outlasts the kernel.
  costs.nodes[NodeId(0)].collective.transfer = {1'000'000};
  SimGraph slow(graph, costs);
  Timeline t = MakeTimeline(slow, {});
  EXPECT_GT(t.exposed.value, 0);
  EXPECT_EQ(t.collectives[0].exposed, t.exposed);
  EXPECT_EQ(t.exposed + t.compute.busy, t.makespan);
  EXPECT_EQ(FindCriticalPath(slow, t).collective, t.makespan);
  EXPECT_EQ(Replay(slow).outcome().makespan, t.makespan);
}

TEST(Replay, GivesWhatTheTimelineGives) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    Case c = RandomCase(seed, 300);
    SimGraph sim(c.graph(), c.costs);
    Replay replay(sim, c.options);
    Timeline t = MakeTimeline(sim, c.options);
    EXPECT_EQ(replay.outcome(), (Outcome{t.makespan, t.exposed, t.peak}));
    std::vector<NodeId> order = Shuffled(c.graph(), t.order, seed);
    Timeline shuffled = MakeTimeline(sim, c.options, order);
    EXPECT_EQ(replay.Run(order), (Outcome{shuffled.makespan, shuffled.exposed, shuffled.peak}));
    EXPECT_EQ(shuffled.exposed + shuffled.compute.busy, shuffled.makespan);
    EXPECT_LE(FindLowerBounds(c.graph(), sim, shuffled).best(), shuffled.makespan);
    // And back again.
    EXPECT_EQ(replay.Run(t.order), (Outcome{t.makespan, t.exposed, t.peak}));
  }
}

TEST(Replay, AfterAChangeIsThatOfTheWholeOrder) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    Case c = RandomCase(seed, 600);
    SimGraph sim(c.graph(), c.costs);
    Replay replay(sim, c.options);
    Replay whole(sim, c.options);
    std::mt19937 random(seed);
    for (int change = 0; change < 12; ++change) {
      size_t size = replay.order().size();
      size_t first = random() % size;
      size_t count = std::min<size_t>(size - first, 1 + random() % 80);
      auto begin = replay.order().begin() + static_cast<ptrdiff_t>(first);
      std::vector<NodeId> part(begin, begin + static_cast<ptrdiff_t>(count));
      replay.Reorder(first, Shuffled(c.graph(), part, random()));
      std::vector<NodeId> order = replay.order();
      ASSERT_EQ(replay.outcome(), whole.Run(order)) << "seed " << seed << " change " << change;
    }
  }
}

TEST(Replay, OfTheSameOrderIsTheSameEveryTime) {
  Case c = RandomCase(7, 400);
  SimGraph sim(c.graph(), c.costs);
  Outcome first = Replay(sim, c.options).outcome();
  for (int run = 0; run < 20; ++run) EXPECT_EQ(Replay(sim, c.options).outcome(), first);
}

// Nothing can be hidden here, so two bounds are tight.
TEST(Bounds, WindowsAreTightWhereEverythingIsExposed) {
  Result<Module> module = ParseModule(
      "heddle 1 local\nmesh [dp=2]\ngraph @g(%x: f32[64]) -> (%f) {\n"
      "  %a = aten.exp(%x)\n  %b! = comm.all_reduce(%a, over=[dp], why=tensor)\n  %b = "
      "comm.wait(%b!)\n"
      "  %c = aten.exp(%b)\n  %d! = comm.all_reduce(%c, over=[dp], why=tensor)\n  %d = "
      "comm.wait(%d!)\n"
      "  %f = aten.exp(%d)\n}\n",
      "test", Ops());
  CostModel model = *CostModel::Make(*ParseCluster(kSmallCluster, "small.json"), {});
  GraphCosts costs = *model.Price(*module, module->graphs[0]);
  SimGraph sim(module->graphs[0], costs);
  Timeline t = MakeTimeline(sim, {});
  LowerBounds bounds = FindLowerBounds(module->graphs[0], sim, t);
  EXPECT_EQ(bounds.windows, t.makespan);
  EXPECT_EQ(bounds.path, t.makespan);
  EXPECT_GT(t.exposed.value, 0);
}

}  // namespace
}  // namespace heddle::price
