#include "heddle/price/sim/simulate.h"

#include <algorithm>

namespace heddle::price {
namespace {

constexpr double kNanosPerSecond = 1e9;
constexpr double kThousandths = 1000;

std::optional<int64_t> TokensOf(const Graph& graph) {
  for (const Input& input : graph.inputs()) {
    TypeId type = input.global.type ? input.global.type : graph.type(input.value);
    if (input.role == InputRole::kBatch && IsInteger(graph.types().dtype(type)))
      return graph.types().elements_bound(type);
  }
  return std::nullopt;
}

// Backward computes each product of forward twice. Counting forward three times excludes
// recomputation from the utilisation.
double IdealNanos(const Graph& graph, const GraphCosts& costs) {
  bool trains = std::ranges::any_of(graph.nodes(),
                                    [&](NodeId id) { return graph[id].phase == Phase::kBackward; });
  return static_cast<double>(costs.ideal_forward.value) * (trains ? 3 : 1);
}

}  // namespace

SimOptions TimelineOptions(const CostModel& model, const SimulateOptions& options) {
  if (!model.options().rules.contention) return {.slowdown = 0, .share_links = false};
  auto slowdown =
      static_cast<int64_t>(model.cluster().device.overlap_slowdown * kThousandths + 0.5);
  return {.slowdown = options.slowdown.value_or(slowdown), .share_links = true};
}

Result<Simulation> Simulate(const Module& module, const Graph& graph, const CostModel& model,
                            const SimulateOptions& options) {
  if (module.view != View::kLocal) {
    return Error(
        Diag::kNeedsLocal,
        "a global graph has no timeline; use `heddle parallelize` to make the graph of one rank");
  }
  HEDDLE_TRY(int64_t nodes, model.NodesFor(module.mesh));
  HEDDLE_TRY(GraphCosts costs, model.Price(module, graph));
  SimGraph sim(graph, costs, options.memory);
  Timeline timeline = MakeTimeline(sim, TimelineOptions(model, options));
  Bytes cap = options.memory_cap.value_or(model.cluster().device.memory);
  Simulation out{.nodes = nodes,
                 .ranks = module.mesh.ranks(),
                 .memory_cap = cap,
                 .peak = model.DevicePeak(timeline.peak),
                 .costs = std::move(costs),
                 .graph = std::move(sim),
                 .timeline = std::move(timeline),
                 .bounds = {},
                 .path = {},
                 .why = {},
                 .tokens = {},
                 .tokens_per_second = {},
                 .mfu = {}};
  out.bounds = FindLowerBounds(graph, out.graph, out.timeline);
  out.path = FindCriticalPath(out.graph, out.timeline);
  out.why = ExplainExposure(graph, out.graph, out.timeline, cap);
  out.tokens = options.tokens ? options.tokens : TokensOf(graph);
  auto step = static_cast<double>(out.timeline.makespan.value);
  if (step == 0) return out;
  if (out.tokens) out.tokens_per_second = static_cast<double>(*out.tokens) / step * kNanosPerSecond;
  double ideal = IdealNanos(graph, out.costs);
  if (ideal > 0) out.mfu = ideal / step;
  return out;
}

void AddMicroBatches(const Simulation& other, int64_t count, Simulation& last) {
  const Timeline& timeline = last.timeline;
  WholeStep whole{count, timeline.makespan + other.timeline.makespan * (count - 1),
                  timeline.exposed + other.timeline.exposed * (count - 1)};
  double times = whole.time.value == 0
                     ? 1
                     : static_cast<double>(timeline.makespan.value) * static_cast<double>(count) /
                           static_cast<double>(whole.time.value);
  if (last.tokens_per_second) *last.tokens_per_second *= times;
  if (last.mfu) *last.mfu *= times;
  last.whole = whole;
}

}  // namespace heddle::price
