#include "heddle/price/sim/explain/critical_path.h"

#include <algorithm>

namespace heddle::price {
namespace {

// Walks back from the end. A kernel follows the previous node on its stream. A wait that was idle
// follows its collective. A collective follows the previous one on its stream if it was queued, and
// otherwise its launch.
class Walker {
 public:
  Walker(const SimGraph& graph, const Timeline& timeline)
      : graph_(graph),
        t_(timeline),
        position_(graph.size()),
        before_(timeline.collectives.size(), Task::kNone) {
    for (size_t i = 0; i < t_.order.size(); ++i) position_[t_.order[i].index()] = i;
    std::vector<uint32_t> last(graph.streams().size(), Task::kNone);
    for (uint32_t i = 0; i < t_.collectives.size(); ++i) {
      const CollectiveTimes& c = t_.collectives[i];
      before_[i] = last[c.stream];
      last[c.stream] = i;
    }
  }

  CriticalPath Run() {
    size_t position = t_.order.size();
    if (t_.makespan > TimeOfComputeEnd()) {
      for (uint32_t i = 0; i < t_.collectives.size(); ++i) {
        if (t_.nodes[t_.collectives[i].start.index()].end != t_.makespan) continue;
        position = WalkCollectives(i);
        break;
      }
    }
    while (position > 0) position = WalkCompute(position - 1);
    path_.compute += graph_.around();
    std::ranges::reverse(path_.steps);
    return std::move(path_);
  }

 private:
  Nanos TimeOfComputeEnd() const {
    return t_.order.empty() ? graph_.around() : t_.nodes[t_.order.back().index()].left;
  }

  // Returns the position on the compute stream before the node at `position`, plus one.
  size_t WalkCompute(size_t position) {
    NodeId id = t_.order[position];
    const NodeTimes& times = t_.nodes[id.index()];
    const Task& task = graph_[id];
    // The times of a start are those on its own stream; use the time when compute reached it.
    Nanos begin = task.kind == Task::Kind::kStart ? times.reached : times.begin;
    Add({id, begin, times.left, false});
    if (task.kind == Task::Kind::kWait && times.begin > times.reached)
      return WalkCollectives(t_.collective_of[task.start]);
    return position;
  }

  // Walks back along a collective's queue. Returns the position at which the first one was
  // launched.
  size_t WalkCollectives(uint32_t number) {
    for (;;) {
      const CollectiveTimes& c = t_.collectives[number];
      const NodeTimes& times = t_.nodes[c.start.index()];
      Add({c.start, times.begin, times.end, true});
      if (c.queued.value == 0) return position_[c.start.index()];
      number = before_[number];
    }
  }

  void Add(const PathStep& step) {
    if (step.end == step.begin) return;
    (step.collective ? path_.collective : path_.compute) += step.end - step.begin;
    path_.steps.push_back(step);
  }

  const SimGraph& graph_;
  const Timeline& t_;
  std::vector<size_t> position_;
  // Indexed by collective: the previous one on its stream.
  std::vector<uint32_t> before_;
  CriticalPath path_;
};

}  // namespace

CriticalPath FindCriticalPath(const SimGraph& graph, const Timeline& timeline) {
  return Walker(graph, timeline).Run();
}

}  // namespace heddle::price
