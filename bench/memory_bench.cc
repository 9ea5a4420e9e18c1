// Measures memory decisions: minimum cuts and splits, and budgets with all candidates.
#include <benchmark/benchmark.h>

#include "bench/consume.h"
#include "bench/llama_graph.h"
#include "heddle/compile/manager/manager.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/search/memory/memory_search.h"

namespace heddle {
namespace {

// The graph after lowering, with 32 or 80 layers.
const Module& Lowered(int64_t nodes) {
  static const Module small =
      MakeLlamaGraph({.nodes = 5'500, .tokens = 8192, .tp = 8, .lowered = true});
  static const Module large = MakeLlamaGraph({.nodes = 13'800,
                                              .dim = 8192,
                                              .heads = 64,
                                              .ffn = 28672,
                                              .tokens = 8192,
                                              .tp = 8,
                                              .lowered = true});
  return nodes == 32 ? small : large;
}

void CutAndSplit(benchmark::State& state) {
  compile::Pipeline pipeline = *compile::ParsePipeline(
      "checkpoint{policy=min-cut}, rematerialize, partition", compile::Passes());
  for (auto _ : state) {
    state.PauseTiming();
    Module module = Lowered(state.range(0));
    state.ResumeTiming();
    Consume(compile::RunPipeline(module, pipeline));
  }
  state.counters["nodes"] = static_cast<double>(Lowered(state.range(0)).graphs[0].node_count());
}

void FindBudget(benchmark::State& state) {
  price::CostModel model = *price::CostModel::Make(*price::LoadCluster("h100-8x"), {});
  compile::Pipeline after = *compile::ParsePipeline("fsdp", compile::Passes());
  Module module = Lowered(state.range(0));
  HEDDLE_CHECK(
      compile::RunPipeline(module, *compile::ParsePipeline("clean", compile::Passes())).ok(),
      "clean");
  std::vector<search::MemoryChoice> curve =
      *(*search::MemorySearch::Make(module, after, model))->Sweep();
  Bytes middle{(curve.front().peak.value + curve.back().peak.value) / 2};
  for (auto _ : state) {
    auto search = *search::MemorySearch::Make(module, after, model);
    Consume(search->FindWithin(middle));
    state.counters["trials"] = static_cast<double>(search->trials().count());
  }
  state.counters["nodes"] = static_cast<double>(module.graphs[0].node_count());
}

BENCHMARK(CutAndSplit)->Arg(32)->Arg(80)->Unit(benchmark::kMillisecond);
BENCHMARK(FindBudget)->Arg(32)->Arg(80)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace heddle
