// Measures the solver: problems like placing a training step on a mesh, solved to proven
// optimality, and minimum cuts.
#include <random>

#include <benchmark/benchmark.h>

#include "bench/consume.h"
#include "bench/layered_problem.h"
#include "heddle/core/analysis/max_flow.h"
#include "heddle/core/base/check.h"
#include "heddle/search/solve/solve.h"

namespace heddle {
namespace {

void SolveLayered(benchmark::State& state, const LayeredOptions& options) {
  search::PairwiseProblem problem = MakeLayeredProblem(options);
  for (auto _ : state) {
    search::PairwiseAnswer answer = search::Solve(problem);
    HEDDLE_CHECK(answer.proved(), "the answer is not proved");
    Consume(answer);
  }
  search::ProblemSize size = search::SizeOf(problem);
  state.counters["variables"] = static_cast<double>(size.variables);
  state.counters["choices"] = static_cast<double>(size.choices);
  state.counters["entries"] = static_cast<double>(size.entries);
}

void SolveFree(benchmark::State& state) { SolveLayered(state, {.noise = 0.05}); }
void SolveThreeAxes(benchmark::State& state) {
  SolveLayered(state, {.layers = 16, .mesh = {2, 4, 8}, .noise = 0.05});
}
// The argument is the budget, as a share of the bytes of fully replicated parameters.
void SolveBudget(benchmark::State& state) {
  SolveLayered(state,
               {.noise = 0.05, .parameter_share = static_cast<double>(state.range(0)) / 100});
}

// What to keep of a forward pass: each op is two nodes, connected by an edge with the size of its
// result. Ops that cannot be recomputed are connected to the source, operands of backward to the
// sink.
void CutForward(benchmark::State& state) {
  std::mt19937 random(1);
  auto ops = static_cast<size_t>(state.range(0));
  MaxFlow flow;
  FlowNodeId source = flow.AddNode();
  FlowNodeId sink = flow.AddNode();
  std::vector<FlowNodeId> results;
  for (size_t i = 0; i < ops; ++i) {
    FlowNodeId op = flow.AddNode();
    FlowNodeId result = flow.AddNode();
    flow.AddEdge(op, result, static_cast<int64_t>(1 + random() % (size_t{1} << 30)));
    if (i == 0 || random() % 10 == 0) flow.AddEdge(source, op, MaxFlow::kInfinite);
    for (size_t k = 1 + random() % 2; k > 0 && i > 0; --k)
      flow.AddEdge(results[i - 1 - random() % std::min<size_t>(i, 20)], op, MaxFlow::kInfinite);
    if (random() % 4 == 0) flow.AddEdge(result, sink, MaxFlow::kInfinite);
    results.push_back(result);
  }
  for (auto _ : state) Consume(flow.Solve(source, sink));
}

BENCHMARK(SolveFree)->Name("solve/32_layers_32x8")->Unit(benchmark::kMillisecond);
BENCHMARK(SolveThreeAxes)->Name("solve/16_layers_2x4x8")->Unit(benchmark::kMillisecond);
BENCHMARK(SolveBudget)
    ->Name("solve/32_layers_32x8_budget")
    ->Arg(50)
    ->Arg(20)
    ->Arg(5)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(CutForward)->Name("solve/cut_of_ops")->Arg(36'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace heddle
