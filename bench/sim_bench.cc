// Measures the simulation: pricing a graph, replaying a whole order, and replaying it after a local
// change.
#include <random>

#include <benchmark/benchmark.h>

#include "bench/consume.h"
#include "bench/llama_graph.h"
#include "heddle/price/sim/simulate.h"
#include "heddle/price/sim/timeline/replay.h"
#include "heddle/report/html/page.h"

namespace heddle {
namespace {

struct Step {
  Module module;
  price::CostModel model;
  price::GraphCosts costs;
  price::SimGraph sim;

  explicit Step(size_t nodes)
      : module(MakeLlamaGraph({.nodes = nodes, .tp = 8})),
        model(*price::CostModel::Make(*price::LoadCluster("h100-8x"), {})),
        costs(*model.Price(module, module.graphs[0])),
        sim(module.graphs[0], costs) {}
};
const Step& StepOf(int64_t nodes) {
  static const Step small(36'000);
  static const Step large(360'000);
  return nodes == 36'000 ? small : large;
}
constexpr price::SimOptions kOptions{.slowdown = 120, .share_links = true};

void PriceGraph(benchmark::State& state) {
  const Step& step = StepOf(state.range(0));
  for (auto _ : state) Consume(step.model.Price(step.module, step.module.graphs[0]));
}

void MakeSimGraph(benchmark::State& state) {
  const Step& step = StepOf(state.range(0));
  for (auto _ : state) Consume(price::SimGraph(step.module.graphs[0], step.costs));
}

void ReplayOrder(benchmark::State& state, const price::SimOptions& options) {
  const Step& step = StepOf(state.range(0));
  price::Replay replay(step.sim, options);
  std::vector<NodeId> order = replay.order();
  for (auto _ : state) Consume(replay.Run(order));
}
void ReplayWhole(benchmark::State& state) { ReplayOrder(state, {}); }
void ReplaySlowed(benchmark::State& state) { ReplayOrder(state, kOptions); }

// Reorders sixteen nodes and restores their order, at positions all over the graph.
void ReplayChange(benchmark::State& state) {
  const Step& step = StepOf(state.range(0));
  const Graph& graph = step.module.graphs[0];
  price::Replay replay(step.sim);
  std::mt19937 random(1);
  constexpr size_t kNodes = 16;
  for (auto _ : state) {
    state.PauseTiming();
    size_t first = random() % (replay.order().size() - kNodes);
    std::vector<NodeId> before(replay.order().begin() + static_cast<ptrdiff_t>(first),
                               replay.order().begin() + static_cast<ptrdiff_t>(first + kNodes));
    std::vector<NodeId> nodes = before;
    for (size_t round = 0; round < 4 * kNodes; ++round) {
      size_t i = random() % (kNodes - 1);
      bool needs = false;
      for (ValueId value : graph.operands(nodes[i + 1]))
        needs |= value && graph[value].producer == nodes[i];
      if (!needs) std::swap(nodes[i], nodes[i + 1]);
    }
    state.ResumeTiming();
    Consume(replay.Reorder(first, nodes));
    Consume(replay.Reorder(first, before));
  }
}

void SimulateAll(benchmark::State& state) {
  const Step& step = StepOf(state.range(0));
  for (auto _ : state) Consume(price::Simulate(step.module, step.module.graphs[0], step.model, {}));
}

void WritePage(benchmark::State& state) {
  const Step& step = StepOf(state.range(0));
  const Graph& graph = step.module.graphs[0];
  price::Simulation simulation = *price::Simulate(step.module, graph, step.model, {});
  ReportedGraph reported = {{{"step", "", &step.module, &graph, &step.model, &simulation}}};
  size_t bytes = 0;
  for (auto _ : state) bytes = FormatPage({reported}).size();
  state.counters["bytes_per_node"] =
      static_cast<double>(bytes) / static_cast<double>(graph.node_count());
}

#define HEDDLE_BENCH(function, name) \
  BENCHMARK(function)->Name(name)->Arg(36'000)->Arg(360'000)->Unit(benchmark::kMillisecond)
HEDDLE_BENCH(PriceGraph, "price");
HEDDLE_BENCH(MakeSimGraph, "sim_graph");
HEDDLE_BENCH(ReplayWhole, "replay");
HEDDLE_BENCH(ReplaySlowed, "replay_slowed");
HEDDLE_BENCH(ReplayChange, "replay_two_changes");
HEDDLE_BENCH(SimulateAll, "simulate");
HEDDLE_BENCH(WritePage, "page");
#undef HEDDLE_BENCH

}  // namespace
}  // namespace heddle
