// Measures `heddle overlap` of Llama-like steps, by effort, and with all options turned on.
#include <benchmark/benchmark.h>

#include "bench/consume.h"
#include "bench/llama_graph.h"
#include "heddle/compile/passes/chunks/async_tensor_parallel.h"

namespace heddle {
namespace {

// About Llama 3 8B, 70B, and a step with 600 collectives.
constexpr int64_t kSizes[] = {10'500, 26'000, 36'000};

void Schedule(benchmark::State& state, const compile::OverlapOptions& options) {
  price::CostModel model = *price::CostModel::Make(*price::LoadCluster("h100-8x"), {});
  const Module module = MakeLlamaGraph({.nodes = static_cast<size_t>(state.range(0))});
  for (auto _ : state) {
    Graph graph = module.graphs[0];
    compile::PassContext context(module.mesh);
    Consume(compile::Overlap(module, graph, model, price::SimulateOptions(), options, context));
  }
  state.counters["nodes"] = static_cast<double>(module.graphs[0].node_count());
}
void OverlapFast(benchmark::State& state) {
  compile::OverlapOptions options;
  options.effort = compile::Effort::kFast;
  Schedule(state, options);
}
void OverlapNormal(benchmark::State& state) { Schedule(state, compile::OverlapOptions()); }
void OverlapReordered(benchmark::State& state) {
  compile::OverlapOptions options;
  options.reorder_compute = true;
  Schedule(state, options);
}

void CutInChunks(benchmark::State& state) {
  price::CostModel model = *price::CostModel::Make(*price::LoadCluster("h100-8x"), {});
  const Module module = MakeLlamaGraph({.nodes = static_cast<size_t>(state.range(0)), .tp = 8});
  for (auto _ : state) {
    Graph graph = module.graphs[0];
    Consume(compile::AsyncTensorParallel(module, graph, model, price::SimulateOptions(),
                                         compile::AsyncOptions()));
  }
}

void Sizes(benchmark::internal::Benchmark* bench) {
  for (int64_t size : kSizes) bench->Arg(size);
  bench->Unit(benchmark::kMillisecond)->Iterations(2);
}
BENCHMARK(OverlapFast)->Apply(Sizes);
BENCHMARK(OverlapNormal)->Apply(Sizes);
BENCHMARK(OverlapReordered)->Apply(Sizes);
BENCHMARK(CutInChunks)->Arg(10'500)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
}  // namespace heddle
