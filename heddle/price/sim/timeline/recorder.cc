#include "heddle/price/sim/timeline/recorder.h"

#include <algorithm>

namespace heddle::price {

TimelineRecorder::TimelineRecorder(const SimGraph& graph, std::span<const NodeId> order)
    : graph_(graph) {
  t_.collective_of.assign(graph.size(), Task::kNone);
  t_.order.assign(order.begin(), order.end());
  t_.nodes.resize(graph.size());
  t_.streams.resize(graph.streams().size());
  t_.compute.busy = graph.around();
  engine_times_.begin.resize(graph.size());
  engine_times_.end.resize(graph.size());
}

void TimelineRecorder::Add(NodeId id, Nanos reached, Nanos stalled, Nanos left) {
  const Task& task = graph_[id];
  NodeTimes& times = t_.nodes[id.index()];
  times.reached = reached;
  times.begin = reached + stalled;
  times.end = times.left = left;
  t_.compute.busy += times.end - times.begin;
  if (task.kind == Task::Kind::kStart) {
    t_.collective_of[id.index()] = static_cast<uint32_t>(t_.collectives.size());
    t_.collectives.push_back({id, NodeId(), task.stream, {}, {}, {}, {}});
  } else if (task.kind == Task::Kind::kWait && task.start != Task::kNone) {
    CollectiveTimes& waited = t_.collectives[t_.collective_of[task.start]];
    waited.wait = id;
    waited.exposed += stalled;
  }
}

Timeline TimelineRecorder::Finish(Nanos compute_end, Nanos end) {
  t_.makespan = std::max(compute_end, end);
  for (const Arrival& arrival : arrived_) {
    CollectiveTimes& c = t_.collectives[t_.collective_of[arrival.task]];
    c.held = engine_times_.begin[arrival.task] - arrival.time;
  }
  for (CollectiveTimes& c : t_.collectives) Complete(c);
  if (t_.makespan > compute_end) ExposeTail(t_.makespan - compute_end);
  for (const CollectiveTimes& c : t_.collectives) {
    const NodeTimes& times = t_.nodes[c.start.index()];
    t_.streams[c.stream].busy += times.end - times.begin;
    t_.streams[c.stream].exposed += c.exposed;
    t_.exposed += c.exposed;
  }
  t_.compute.exposed = t_.exposed;
  AddMemory();
  return std::move(t_);
}

void TimelineRecorder::Complete(CollectiveTimes& c) {
  NodeTimes& times = t_.nodes[c.start.index()];
  times.begin = engine_times_.begin[c.start.index()];
  times.end = engine_times_.end[c.start.index()];
  c.queued = times.begin - times.reached - graph_[c.start].ahead - c.held;
  c.shared = times.end - times.begin - graph_[c.start].alone();
}

// The tail is exposed by the collective that ends last.
void TimelineRecorder::ExposeTail(Nanos tail) {
  auto last = std::ranges::find_if(t_.collectives, [&](const CollectiveTimes& c) {
    return t_.nodes[c.start.index()].end == t_.makespan;
  });
  last->exposed += tail;
}

void TimelineRecorder::AddMemory() {
  std::vector<uint32_t> last_need(graph_.storage_count());
  for (size_t position = 0; position < t_.order.size(); ++position) {
    for (uint32_t storage : graph_.needs(t_.order[position]))
      last_need[storage] = static_cast<uint32_t>(position);
  }
  Bytes live = graph_.inputs();
  t_.peak = live;
  t_.live.reserve(t_.order.size());
  for (size_t position = 0; position < t_.order.size(); ++position) {
    NodeId id = t_.order[position];
    live += graph_.born(id);
    t_.live.push_back(live + graph_.passing(id));
    if (t_.live.back() > t_.peak) {
      t_.peak = t_.live.back();
      t_.peak_position = position;
    }
    for (uint32_t storage : graph_.needs(id)) {
      if (last_need[storage] == position) live -= graph_.storage_bytes(storage);
    }
  }
}

}  // namespace heddle::price
