#include "heddle/compile/step_outcome.h"

#include <algorithm>

#include "heddle/report/summary.h"
#include "heddle/sim/explain/bounds.h"
#include "heddle/sim/timeline/timeline.h"

namespace heddle {
namespace {

constexpr double kThousandths = 1000;

struct Sums {
  Nanos time;
  Nanos exposed;

  double share() const {
    if (time.value == 0) return 1;
    return std::min(1.0, static_cast<double>(exposed.value) / static_cast<double>(time.value));
  }
};

}  // namespace

Result<StepOutcome> MeasureStep(const Module& module, const CostModel& model) {
  const Graph& graph = module.graphs[0];
  HEDDLE_TRY(GraphCosts costs, model.Price(module, graph));
  SimGraph sim(graph, costs);
  double slowdown = model.cluster().device.overlap_slowdown;
  Timeline timeline =
      MakeTimeline(sim, {.slowdown = static_cast<int64_t>(slowdown * kThousandths + 0.5)});
  Sums gathers;
  Sums gradients;
  Sums tensors;
  for (const CollectiveTimes& c : timeline.collectives) {
    const AttrValue* why = graph.attrs(c.start).Find("why");
    Why purpose = why != nullptr ? std::get<Why>(*why) : Why::kTensor;
    Sums& sums = purpose == Why::kUnshard ? gathers : purpose == Why::kGrad ? gradients : tensors;
    const NodeTimes& times = timeline.nodes[c.start.index()];
    sums.time += times.end - times.begin;
    sums.exposed += c.exposed;
  }
  Bytes floor = KeptForBackward(graph);
  for (const Input& input : graph.inputs()) floor += graph.types().bytes(graph.type(input.value));
  return StepOutcome{timeline.makespan,
                     timeline.exposed,
                     timeline.peak,
                     sim.compute(),
                     FindLowerBounds(graph, sim, timeline).best(),
                     floor,
                     {gathers.share(), gradients.share(), tensors.share()}};
}

}  // namespace heddle
