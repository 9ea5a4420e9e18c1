#include "heddle/search/evaluate/evaluate.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "heddle/core/analysis/stats.h"
#include "heddle/core/base/clock.h"
#include "heddle/price/sim/simulate.h"
#include "heddle/price/sim/step_memory.h"

namespace heddle::search {
namespace {

struct Sums {
  Nanos time;
  Nanos exposed;

  double share() const {
    if (time.value == 0) return 1;
    return std::min(1.0, static_cast<double>(exposed.value) / static_cast<double>(time.value));
  }
};

price::MoveShares SharesOf(const Graph& graph, const price::Timeline& timeline) {
  Sums gathers;
  Sums gradients;
  Sums tensors;
  for (const price::CollectiveTimes& c : timeline.collectives) {
    const AttrValue* why = graph.attrs(c.start).Find("why");
    Why purpose = why != nullptr ? std::get<Why>(*why) : Why::kTensor;
    Sums& sums = purpose == Why::kUnshard ? gathers : purpose == Why::kGrad ? gradients : tensors;
    const price::NodeTimes& times = timeline.nodes[c.start.index()];
    sums.time += times.end - times.begin;
    sums.exposed += c.exposed;
  }
  return {gathers.share(), gradients.share(), tensors.share()};
}

ContextTraffic ContextOf(const Module& module, const Graph& graph,
                         const price::Timeline& timeline) {
  ContextTraffic out;
  auto splits_positions = [](const MeshAxis& axis) { return SplitsPositions(axis.role); };
  if (std::ranges::none_of(module.mesh.axes(), splits_positions)) return out;
  for (const price::CollectiveTimes& c : timeline.collectives) {
    const AttrValue* why = graph.attrs(c.start).Find("why");
    if (why != nullptr && std::get<Why>(*why) == Why::kContext) out.exposed += c.exposed;
  }
  for (const CollectiveStats& stats : CountCollectives(module, graph)) {
    if (stats.why == Name(Why::kContext)) out.bytes += stats.bytes;
  }
  return out;
}

}  // namespace

nlohmann::ordered_json ToJson(const StepOutcome& outcome) {
  return {{"step_ms", Millis(outcome.step)},
          {"exposed_ms", Millis(outcome.exposed)},
          {"peak_bytes", outcome.peak.value}};
}

compile::ManagerOptions Evaluator::Unchecked() const {
  compile::ManagerOptions options;
  options.check = false;
  options.costs = costs_;
  return options;
}

Result<Evaluation> Evaluator::Run(Module module, const compile::Pipeline& passes) const {
  HEDDLE_TRY(compile::RunReport report, compile::RunPipeline(module, passes, Unchecked()));
  const Graph& graph = module.graphs[0];
  HEDDLE_TRY(price::GraphCosts costs, costs_->Price(module, graph));
  price::SimGraph sim(graph, costs);
  price::Timeline timeline = price::MakeTimeline(sim, price::TimelineOptions(*costs_, {}));
  price::StepMemory memory = price::MemoryOfStep(graph, *costs_, timeline.peak);
  StepBounds bounds{sim.compute(), price::FindLowerBounds(graph, sim, timeline).best(),
                    costs_->DevicePeak(memory.inputs + memory.kept)};
  StepOutcome outcome{timeline.makespan, timeline.exposed, costs_->DevicePeak(memory.peak),
                      ContextOf(module, graph, timeline), bounds};
  price::MoveShares shares = SharesOf(graph, timeline);
  return Evaluation{std::move(module), std::move(report.passes), outcome, shares, memory.kept};
}

Result<StepBounds> Evaluator::Bounds(Module module, const compile::Pipeline& passes) const {
  HEDDLE_RETURN_IF_ERROR(compile::RunPipeline(module, passes, Unchecked()));
  const Graph& graph = module.graphs[0];
  HEDDLE_TRY(price::GraphCosts costs, costs_->Price(module, graph));
  price::StepMemory memory = price::MemoryOfStep(graph, *costs_, {});
  return StepBounds{.compute = price::SimGraph(graph, costs).compute(),
                    .peak = costs_->DevicePeak(memory.inputs + memory.kept)};
}

}  // namespace heddle::search
