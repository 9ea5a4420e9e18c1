#include "heddle/cli/step/sim_flags.h"

#include <algorithm>
#include <ostream>

#include <nlohmann/json.hpp>

#include "heddle/core/base/text.h"
#include "heddle/report/comparison.h"
#include "heddle/report/html/page.h"
#include "heddle/report/pipeline_report.h"
#include "heddle/report/sim_report.h"
#include "heddle/report/trace.h"

namespace heddle {
namespace {

// Checks that both modules have the same graphs.
Status CheckPairs(std::span<const search::SimulatedModule> modules) {
  size_t graphs = modules[0].simulations.size();
  for (const search::SimulatedModule& other : modules) {
    if (other.simulations.size() != graphs)
      return Error(Diag::kUsage, "{} has {} and {} has {}; graphs are compared in pairs",
                   modules[0].name, Counted(graphs, "graph"), other.name,
                   Counted(other.simulations.size(), "graph"));
  }
  return Done{};
}

// The keys of the whole step instead of those of one coordinate.
void AddPipeline(const search::SimulatedModule& simulated, nlohmann::ordered_json& json) {
  json["makespan_ms"] = Millis(simulated.pipeline->step);
  if (!json.contains("micro_batches")) json["step_ms"] = json["makespan_ms"];
  json["lower_bound_ms"] = Millis(simulated.pipeline->bound);
  json["pipeline"] = ToJson(simulated.module, simulated.simulations, *simulated.pipeline);
}

}  // namespace

void DeclareExecution(Flags& flags, std::optional<price::Execution>& execution) {
  using enum price::Execution;
  flags.Choice<price::Execution>(
      "--runtime.execution", execution,
      "what runs the predicted step: heddle, eager (PyTorch op by op) or compiled (torch.compile) "
      "(default: heddle)",
      {{Name(kHeddle), kHeddle}, {Name(kEager), kEager}, {Name(kCompiled), kCompiled}});
}

void DeclarePrices(Flags& flags, price::PriceOptions& prices, std::string_view cluster_help) {
  flags.Option("--cluster", prices.cluster,
               fmt::format("{}: a name, or a JSON file (docs/cost.md)", cluster_help));
  flags.Option("--nodes", prices.nodes,
               "nodes of the cluster (default: as many as the mesh needs)");
  flags.Option("--costs=FILE", prices.costs,
               "measured times, which override the cost model: JSON, or a table of collectives");
  flags.Choice<price::CollectiveModel>(
      "--collectives", prices.collectives, "cost model of collectives: native or nccl-2.27",
      {{Name(price::CollectiveModel::kNative), price::CollectiveModel::kNative},
       {Name(price::CollectiveModel::kNccl), price::CollectiveModel::kNccl}});
  DeclareExecution(flags, prices.chosen_execution);
  flags.Switch("--fuse", prices.compiled, "another name of --runtime.execution=compiled");
  flags.Option("--expert_load", prices.expert_load,
               "distribution of tokens over experts: uniform, zipf:1.2, or a file with the tokens "
               "of each expert, such as --metrics.jsonl of `heddle train`; the most loaded rank "
               "sets the time");
}

void SimFlags::Declare(Flags& flags, bool with_memory_cap) {
  flags.Section("Simulation");
  DeclarePrices(flags, *this, "cluster to simulate");
  flags.Choice<price::TimelineRules>(
      "--rules", rules,
      "timeline rules: native, or autoparallel (1 us per node, links never shared, no packing)",
      {{"native", price::TimelineRules{}}, {"autoparallel", price::kAutoParallelRules}});
  flags.Option("--slowdown", slowdown,
               "slowdown of compute while a collective is in flight, in percent (default: the "
               "cluster's)");
  if (with_memory_cap)
    flags.Option("--memory-cap", memory_cap,
                 "memory limit that reports compare the peak with, as in 64GiB; changes no "
                 "schedule (default: the device's memory)");
  flags.Switch("--free-inputs", free_inputs,
               "free each input after its last use (default: the caller keeps them)");
  flags.Option("--tokens", tokens, "tokens per step over all ranks (default: from the graph)");
}

Result<price::SimulateOptions> SimFlags::Options() const {
  price::SimulateOptions options;
  if (slowdown && (*slowdown < 0 || *slowdown > 1000))
    return Error(Diag::kBadChoice, "--slowdown is {} per cent, expected 0 to 1000", *slowdown);
  if (slowdown) options.slowdown = *slowdown * 10;
  if (tokens && *tokens < 1)
    return Error(Diag::kBadChoice, "--tokens is {}, expected at least 1", *tokens);
  options.tokens = tokens;
  if (free_inputs) options.memory.inputs = price::InputMemory::kFreed;
  if (!memory_cap.empty()) {
    HEDDLE_TRY(options.memory_cap, ParseBytes(memory_cap));
  }
  return options;
}

void SimOutputs::Declare(Flags& flags) {
  flags.Section("Output");
  flags.Option("--html=FILE", html, "write a report for a browser to this file");
  flags.Option("--trace=FILE", trace,
               "write a trace for Perfetto or chrome://tracing to this file");
  flags.Switch("--timeline", timeline, "print every kernel and collective in order of time");
  flags.Switch("--json", json,
               "print JSON: an object, or a list if there are several graphs; times in "
               "milliseconds");
}

Status SimOutputs::Check() const {
  return CheckOneOutput({{"--trace=-", trace == "-"},
                         {"--html=-", html == "-"},
                         {"--json", json},
                         {"--timeline", timeline}});
}

Status SimOutputs::WriteFiles(std::span<const search::SimulatedModule> modules,
                              const price::CostModel& model, const Streams& streams) const {
  const search::SimulatedModule& last = modules.back();
  std::vector<TracedGraph> traced;
  for (size_t i = 0; i < last.simulations.size(); ++i)
    traced.push_back({&last.module.graphs[i], &last.simulations[i]});
  if (!trace.empty())
    HEDDLE_RETURN_IF_ERROR(WriteOutput(trace, FormatTrace(last.module, traced), streams));
  if (html.empty()) return Done{};
  return WritePage(html, modules, model, streams);
}

Status SimOutputs::Write(std::span<const search::SimulatedModule> modules,
                         const price::CostModel& model, const Streams& streams,
                         const std::optional<SimulatedModel>& captured) const {
  HEDDLE_RETURN_IF_ERROR(CheckPairs(modules));
  const search::SimulatedModule& last = modules.back();
  auto list = nlohmann::ordered_json::array();
  std::string text;
  if (last.pipeline && !timeline)
    text = FormatPipeline(last.module, last.simulations, *last.pipeline);
  for (size_t i = 0; i < last.simulations.size(); ++i) {
    // A pipeline shows its slowest coordinate in detail.
    if (last.pipeline && !timeline && i != last.pipeline->slowest) continue;
    const Graph& graph = last.module.graphs[i];
    if (!text.empty()) text += "\n";
    text += timeline
                ? FormatTimeline(graph, last.simulations[i])
                : FormatSimulation(last.module, graph, model, last.simulations[i], streams.color);
    if (modules.size() == 1) {
      if (json) list.push_back(ToJson(last.module, graph, model, last.simulations[i]));
    } else {
      StepComparison comparison = Compare(StepOf(modules[0], i, model), StepOf(last, i, model));
      if (json) list.push_back(ToJson(comparison));
      if (!timeline) text += "\n" + FormatComparison(comparison, streams.color);
    }
    if (json && last.pipeline) AddPipeline(last, list.back());
  }
  HEDDLE_RETURN_IF_ERROR(WriteFiles(modules, model, streams));
  if (trace == "-" || html == "-") return Done{};
  // Prints one object in the common case of one graph.
  if (json) {
    for (nlohmann::ordered_json& one : list) {
      if (captured) one.update({{"device", captured->device}, {"optimizer", captured->optimizer}});
    }
    PrintJson(list.size() == 1 ? list[0] : list, streams);
  } else {
    streams.out << text;
  }
  return Done{};
}

Status WritePage(const std::string& path, std::span<const search::SimulatedModule> modules,
                 const price::CostModel& model, const Streams& streams) {
  std::vector<ReportedGraph> graphs(modules[0].simulations.size());
  for (const search::SimulatedModule& simulated : modules) {
    for (size_t i = 0; i < graphs.size(); ++i)
      graphs[i].push_back({StepOf(simulated, i, model), simulated.passes});
  }
  return WriteOutput(path, FormatPage(graphs, modules.back().pipeline), streams);
}

}  // namespace heddle
