// Measures operations on graphs of 36,000 nodes, and of ten times that size.
//
// `copy_text` is the reference of the same run: one copy of the module's text, a lower bound for
// any operation that reads it. tools/bench_report.py prints the other times as multiples of it,
// with the goals.
#include <algorithm>
#include <cstring>

#include <benchmark/benchmark.h>

#include "bench/consume.h"
#include "bench/llama_graph.h"
#include "heddle/compile/manager/manager.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/core/analysis/launch.h"
#include "heddle/core/analysis/memory.h"
#include "heddle/core/analysis/uses.h"
#include "heddle/core/ir/check/check_module.h"
#include "heddle/core/ir/structural_hash.h"
#include "heddle/core/ir/text/parse.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/ops.h"

namespace heddle {
namespace {

const Module& GraphOf(int64_t nodes) {
  static const Module small = MakeLlamaGraph({.nodes = 36'000});
  static const Module large = MakeLlamaGraph({.nodes = 360'000});
  return nodes == 36'000 ? small : large;
}
const std::string& TextOf(int64_t nodes) {
  static const std::string small = Print(GraphOf(36'000));
  static const std::string large = Print(GraphOf(360'000));
  return nodes == 36'000 ? small : large;
}

void Describe(benchmark::State& state) {
  const Graph& graph = GraphOf(state.range(0)).graphs[0];
  state.counters["nodes"] = static_cast<double>(graph.node_count());
  state.counters["collectives"] = static_cast<double>(
      std::ranges::count_if(graph.nodes(), [&](NodeId id) { return IsLaunch(graph, id); }));
  state.counters["text_mb"] = static_cast<double>(TextOf(state.range(0)).size()) / 1e6;
}

void CopyText(benchmark::State& state) {
  const std::string& text = TextOf(state.range(0));
  std::string copy(text.size(), '\0');
  for (auto _ : state) {
    std::memcpy(copy.data(), text.data(), text.size());
    Consume(copy.data());
    benchmark::ClobberMemory();
  }
  Describe(state);
}

void ParseGraph(benchmark::State& state) {
  const std::string& text = TextOf(state.range(0));
  for (auto _ : state) {
    Parsed parsed = ParseText(text, "bench", Ops());
    Consume(parsed.module);
  }
}

void PrintGraph(benchmark::State& state) {
  for (auto _ : state) Consume(Print(GraphOf(state.range(0))));
}

void VerifyGraph(benchmark::State& state) {
  for (auto _ : state) Consume(FindErrors(GraphOf(state.range(0))));
}

void HashGraph(benchmark::State& state) {
  for (auto _ : state) Consume(StructuralHash(GraphOf(state.range(0))));
}

void CopyGraph(benchmark::State& state) {
  for (auto _ : state) {
    Module copy = GraphOf(state.range(0));
    Consume(copy);
  }
}

void ComputeUses(benchmark::State& state) {
  for (auto _ : state) Consume(Uses(GraphOf(state.range(0)).graphs[0]));
}

void ComputeMemory(benchmark::State& state) {
  const Graph& graph = GraphOf(state.range(0)).graphs[0];
  for (auto _ : state) {
    Liveness liveness(graph);
    Consume(ComputeMemoryTimeline(graph, liveness));
  }
}

// Runs the passes as a user does, with every check of the manager.
void RunClean(benchmark::State& state) {
  Result<compile::Pipeline> pipeline =
      compile::ParsePipeline("dce, cse, canonicalize", compile::Passes());
  for (auto _ : state) {
    state.PauseTiming();
    Module module = GraphOf(state.range(0));
    state.ResumeTiming();
    Result<compile::RunReport> report = compile::RunPipeline(module, *pipeline);
    HEDDLE_CHECK(report.ok(), Format(report.diagnostics()));
  }
}

// Runs a pipeline on a graph with a collective for each parameter, including tensor-parallel ones.
void RunLowered(benchmark::State& state, const char* text) {
  static const Module small = MakeLlamaGraph({.nodes = 36'000, .tp = 8, .lowered = true});
  static const Module large = MakeLlamaGraph({.nodes = 360'000, .tp = 8, .lowered = true});
  Result<compile::Pipeline> pipeline = compile::ParsePipeline(text, compile::Passes());
  for (auto _ : state) {
    state.PauseTiming();
    Module module = state.range(0) == 36'000 ? small : large;
    state.ResumeTiming();
    Result<compile::RunReport> report = compile::RunPipeline(module, *pipeline);
    HEDDLE_CHECK(report.ok(), Format(report.diagnostics()));
  }
}

void RunFsdp(benchmark::State& state) { RunLowered(state, "fsdp"); }
void RunMinCut(benchmark::State& state) {
  RunLowered(state, "checkpoint{policy=min-cut}, rematerialize, partition");
}

#define HEDDLE_BENCH(function, name) \
  BENCHMARK(function)->Name(name)->Arg(36'000)->Arg(360'000)->Unit(benchmark::kMillisecond)
HEDDLE_BENCH(CopyText, "copy_text");
HEDDLE_BENCH(ParseGraph, "parse");
HEDDLE_BENCH(PrintGraph, "print");
HEDDLE_BENCH(VerifyGraph, "verify");
HEDDLE_BENCH(HashGraph, "hash");
HEDDLE_BENCH(CopyGraph, "copy");
HEDDLE_BENCH(ComputeUses, "uses");
HEDDLE_BENCH(ComputeMemory, "liveness_memory");
HEDDLE_BENCH(RunClean, "dce_cse_canonicalize");
HEDDLE_BENCH(RunFsdp, "pipeline_fsdp");
HEDDLE_BENCH(RunMinCut, "min_cut_rematerialize_partition");
#undef HEDDLE_BENCH

}  // namespace
}  // namespace heddle
