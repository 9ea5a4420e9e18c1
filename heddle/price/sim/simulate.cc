#include "heddle/price/sim/simulate.h"

#include <algorithm>
#include <cmath>

#include "heddle/core/ir/program.h"
#include "heddle/price/sim/step_memory.h"
#include "heddle/price/sim/timeline/coupled.h"

namespace heddle::price {
namespace {

constexpr double kNanosPerSecond = 1e9;
constexpr double kThousandths = 1000;

// The label without the number of a micro-batch.
std::string_view StemOf(std::string_view label) { return label.substr(0, label.find('.')); }

// The elements of the first integer batch input; in a pipeline, of all its micro-batches.
std::optional<int64_t> TokensOf(const Graph& graph, bool pipeline = false) {
  std::optional<int64_t> tokens;
  std::string_view first;
  for (const Input& input : graph.inputs()) {
    TypeId type = input.global.type ? input.global.type : graph.type(input.value);
    if (input.role != InputRole::kBatch || !IsInteger(graph.types().dtype(type))) continue;
    if (!tokens) first = StemOf(input.label);
    if (!tokens || (pipeline && StemOf(input.label) == first))
      tokens = tokens.value_or(0) + graph.types().elements_bound(type);
  }
  return tokens;
}

// Backward computes each product of forward twice. Counting forward three times excludes
// recomputation from the utilisation.
double IdealNanos(const Graph& graph, const GraphCosts& costs) {
  bool trains = std::ranges::any_of(graph.nodes(),
                                    [&](NodeId id) { return graph[id].phase == Phase::kBackward; });
  return static_cast<double>(costs.ideal_forward.value) * (trains ? 3 : 1);
}

// Sets everything that does not depend on the timeline.
Result<Simulation> Prepare(const Module& module, const Graph& graph, const CostModel& model,
                           const SimulateOptions& options) {
  if (module.view != View::kLocal) {
    return Error(
        Diag::kNeedsLocal,
        "a global graph has no timeline; use `heddle parallelize` to make the graph of one rank");
  }
  HEDDLE_TRY(int64_t nodes, model.NodesFor(module.mesh));
  HEDDLE_TRY(GraphCosts costs, model.Price(module, graph));
  SimGraph sim(graph, costs, options.memory);
  return Simulation{.nodes = nodes,
                    .ranks = module.mesh.ranks(),
                    .memory_cap = options.memory_cap.value_or(model.cluster().device.memory),
                    .peak = {},
                    .costs = std::move(costs),
                    .graph = std::move(sim),
                    .timeline = {},
                    .bounds = {},
                    .path = {},
                    .why = {},
                    .tokens = {},
                    .tokens_per_second = {},
                    .mfu = {}};
}

void SetTimeline(const Graph& graph, const CostModel& model, const SimulateOptions& options,
                 Timeline timeline, Simulation& out) {
  out.timeline = std::move(timeline);
  // Other rules of memory are about values.
  out.program = options.memory == MemoryRules() && model.HasDeviceProgram();
  out.peak = model.DevicePeak(out.program ? MemoryOfStep(graph, model, out.timeline.peak).peak
                                          : out.timeline.peak);
  out.bounds = FindLowerBounds(graph, out.graph, out.timeline);
  out.why = ExplainExposure(graph, out.graph, out.timeline, out.memory_cap);
}

// `ideal`: the time of each device's matrix products at the peak rate.
void SetSpeed(std::optional<int64_t> tokens, double ideal, Nanos time, Simulation& out) {
  out.tokens = tokens;
  auto step = static_cast<double>(time.value);
  if (step == 0) return;
  if (tokens) out.tokens_per_second = static_cast<double>(*tokens) / step * kNanosPerSecond;
  if (ideal > 0) out.mfu = ideal / step;
}

}  // namespace

SimOptions TimelineOptions(const CostModel& model, const SimulateOptions& options) {
  if (!model.options().rules.contention) return {.slowdown = 0, .share_links = false};
  auto slowdown = int64_t{std::llround(model.cluster().device.overlap_slowdown * kThousandths)};
  return {.slowdown = options.slowdown.value_or(slowdown), .share_links = true};
}

Result<Simulation> Simulate(const Module& module, const Graph& graph, const CostModel& model,
                            const SimulateOptions& options) {
  HEDDLE_TRY(Simulation out, Prepare(module, graph, model, options));
  SetTimeline(graph, model, options, MakeTimeline(out.graph, TimelineOptions(model, options)), out);
  out.path = FindCriticalPath(out.graph, out.timeline);
  SetSpeed(options.tokens ? options.tokens : TokensOf(graph), IdealNanos(graph, out.costs),
           out.timeline.makespan, out);
  return out;
}

Result<std::vector<Simulation>> SimulateGraphs(const Module& module, const CostModel& model,
                                               const SimulateOptions& options) {
  std::vector<Simulation> out;
  if (!ProgramAxis(module)) {
    for (const Graph& graph : module.graphs) {
      HEDDLE_TRY(Simulation one, Simulate(module, graph, model, options));
      out.push_back(std::move(one));
    }
    return out;
  }
  HEDDLE_RETURN_IF_ERROR(CheckTransfers(module));
  std::optional<int64_t> tokens = options.tokens;
  double ideal = 0;
  std::vector<const SimGraph*> graphs;
  for (const Graph& graph : module.graphs) {
    HEDDLE_TRY(Simulation one, Prepare(module, graph, model, options));
    if (!tokens) tokens = TokensOf(graph, /*pipeline=*/true);
    ideal += IdealNanos(graph, one.costs);
    out.push_back(std::move(one));
  }
  for (const Simulation& one : out) graphs.push_back(&one.graph);
  std::vector<TransferEnds> transfers = FindTransfers(module);
  std::vector<Timeline> timelines =
      MakeCoupledTimelines(graphs, transfers, TimelineOptions(model, options));
  std::vector<TimedGraph> timed;
  Nanos step;
  for (size_t i = 0; i < out.size(); ++i) {
    SetTimeline(module.graphs[i], model, options, std::move(timelines[i]), out[i]);
    timed.push_back({&out[i].graph, &out[i].timeline});
    step = std::max(step, out[i].timeline.makespan);
  }
  CriticalPath path = FindCriticalPath(timed, transfers);
  for (Simulation& one : out) {
    one.path = path;
    SetSpeed(tokens, ideal / static_cast<double>(out.size()), step, one);
  }
  return out;
}

void AddMicroBatches(std::span<const Simulation> others, int64_t count,
                     std::span<Simulation> last) {
  auto longest = [](std::span<const Simulation> all) {
    Nanos out;
    for (const Simulation& one : all) out = std::max(out, one.timeline.makespan);
    return out;
  };
  const Nanos step = longest(last);
  const Nanos time = step + longest(others) * (count - 1);
  const double times = time.value == 0
                           ? 1
                           : static_cast<double>(step.value) * static_cast<double>(count) /
                                 static_cast<double>(time.value);
  for (size_t i = 0; i < last.size(); ++i) {
    if (last[i].tokens_per_second) *last[i].tokens_per_second *= times;
    if (last[i].mfu) *last[i].mfu *= times;
    last[i].whole = {count, time,
                     last[i].timeline.exposed + others[i].timeline.exposed * (count - 1)};
    last[i].peak = std::max(last[i].peak, others[i].peak);
  }
}

}  // namespace heddle::price
