// What the solver costs: problems like those of placing a training step on a mesh, proved to the end, and cuts of large networks.
#include <random>

#include <benchmark/benchmark.h>

#include "bench/layered_problem.h"
#include "heddle/base/check.h"
#include "heddle/solve/max_flow.h"
#include "heddle/solve/solve.h"

namespace heddle {
namespace {

void SolveLayered(benchmark::State& state, const LayeredOptions& options) {
  PairwiseProblem problem = MakeLayeredProblem(options);
  for (auto _ : state) {
    PairwiseAnswer answer = Solve(problem);
    HEDDLE_CHECK(answer.proved(), "the answer is not proved");
    benchmark::DoNotOptimize(answer);
  }
  ProblemSize size = SizeOf(problem);
  state.counters["variables"] = static_cast<double>(size.variables);
  state.counters["choices"] = static_cast<double>(size.choices);
  state.counters["entries"] = static_cast<double>(size.entries);
}

void SolveFree(benchmark::State& state) { SolveLayered(state, {.noise = 0.05}); }
void SolveThreeAxes(benchmark::State& state) {
  SolveLayered(state, {.layers = 16, .mesh = {2, 4, 8}, .noise = 0.05});
}
// The share of what all parameters take when every rank has all of them.
void SolveBudget(benchmark::State& state) {
  SolveLayered(state,
               {.noise = 0.05, .parameter_share = static_cast<double>(state.range(0)) / 100});
}

// A long chain of nodes with cross edges: what a cut between forward and backward looks like.
void CutChain(benchmark::State& state) {
  std::mt19937 random(1);
  auto nodes = static_cast<size_t>(state.range(0));
  MaxFlow flow;
  for (size_t i = 0; i < nodes; ++i) flow.AddNode();
  for (size_t i = 0; i + 1 < nodes; ++i) {
    for (size_t k = 0; k < 3; ++k) {
      size_t to = std::min(nodes - 1, i + 1 + random() % 50);
      auto capacity = static_cast<int64_t>(1 + random() % (size_t{1} << 30));
      flow.AddEdge(FlowNodeId(i), FlowNodeId(to), capacity);
    }
  }
  for (auto _ : state) benchmark::DoNotOptimize(flow.Solve(FlowNodeId(0), FlowNodeId(nodes - 1)));
}

BENCHMARK(SolveFree)->Name("solve/32_layers_32x8")->Unit(benchmark::kMillisecond);
BENCHMARK(SolveThreeAxes)->Name("solve/16_layers_2x4x8")->Unit(benchmark::kMillisecond);
BENCHMARK(SolveBudget)
    ->Name("solve/32_layers_32x8_budget")
    ->Arg(50)
    ->Arg(20)
    ->Arg(5)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(CutChain)->Name("solve/cut_of_nodes")->Arg(36'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace heddle
