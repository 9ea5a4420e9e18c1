#include "heddle/price/sim/timeline/timeline.h"

#include "heddle/price/sim/timeline/recorder.h"
#include "heddle/price/sim/timeline/stepper.h"

namespace heddle::price {

Timeline MakeTimeline(const SimGraph& graph, const SimOptions& options,
                      std::span<const NodeId> order) {
  TimelineRecorder recorder(graph, order);
  Stepper stepper(graph, options);
  stepper.engine().Record(recorder.engine_times());
  for (NodeId id : order) {
    Nanos reached = stepper.time();
    Nanos stalled = stepper.Step(id);
    recorder.Add(id, reached, stalled, stepper.time());
  }
  Nanos compute_end = stepper.time();
  return recorder.Finish(compute_end, stepper.engine().Drain());
}

Timeline MakeTimeline(const SimGraph& graph, const SimOptions& options) {
  std::vector<NodeId> order;
  for (size_t i = 0; i < graph.size(); ++i) order.emplace_back(i);
  return MakeTimeline(graph, options, order);
}

}  // namespace heddle::price
