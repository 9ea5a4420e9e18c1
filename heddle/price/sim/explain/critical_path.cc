#include "heddle/price/sim/explain/critical_path.h"

#include <algorithm>

namespace heddle::price {
namespace {

// The positions and queues of one graph.
struct Queues {
  explicit Queues(const TimedGraph& timed)
      : position(timed.graph->size()), before(timed.timeline->collectives.size(), Task::kNone) {
    const Timeline& t = *timed.timeline;
    for (size_t i = 0; i < t.order.size(); ++i) position[t.order[i].index()] = i;
    std::vector<uint32_t> last(timed.graph->streams().size(), Task::kNone);
    for (uint32_t i = 0; i < t.collectives.size(); ++i) {
      before[i] = last[t.collectives[i].stream];
      last[t.collectives[i].stream] = i;
    }
  }

  // Indexed by node.
  std::vector<size_t> position;
  // Indexed by collective: the previous one on its stream.
  std::vector<uint32_t> before;
  // Indexed by node: the transfer that it is an end of.
  std::vector<const TransferEnds*> transfer;
};

// Walks back from the end. A kernel follows the previous node on its stream. A wait that was idle
// follows its collective. A collective follows the previous one on its stream if it was queued, and
// otherwise its launch. A transfer that had to wait for its other end follows that end.
class Walker {
 public:
  Walker(std::span<const TimedGraph> graphs, std::span<const TransferEnds> transfers)
      : graphs_(graphs) {
    for (const TimedGraph& graph : graphs) queues_.emplace_back(graph);
    for (Queues& queues : queues_) queues.transfer.resize(queues.position.size());
    for (const TransferEnds& ends : transfers) {
      queues_[ends.from].transfer[ends.send.index()] = &ends;
      queues_[ends.to].transfer[ends.receive.index()] = &ends;
    }
  }

  CriticalPath Run() {
    auto longest = std::ranges::max_element(
        graphs_, {}, [](const TimedGraph& g) { return g.timeline->makespan; });
    at_ = static_cast<size_t>(longest - graphs_.begin());
    position_ = t().order.size();
    if (t().makespan > TimeOfComputeEnd()) {
      for (uint32_t i = 0; i < t().collectives.size(); ++i) {
        if (t().nodes[t().collectives[i].start.index()].end != t().makespan) continue;
        WalkCollectives(i);
        break;
      }
    }
    while (position_ > 0) WalkCompute();
    path_.compute += graph().around();
    std::ranges::reverse(path_.steps);
    return std::move(path_);
  }

 private:
  const SimGraph& graph() const { return *graphs_[at_].graph; }
  const Timeline& t() const { return *graphs_[at_].timeline; }

  Nanos TimeOfComputeEnd() const {
    return t().order.empty() ? graph().around() : t().nodes[t().order.back().index()].left;
  }

  // Moves to before the previous node of the compute stream.
  void WalkCompute() {
    NodeId id = t().order[--position_];
    const NodeTimes& times = t().nodes[id.index()];
    const Task& task = graph()[id];
    // The times of a start are those on its own stream; use the time when compute reached it.
    Nanos begin = task.kind == Task::Kind::kStart ? times.reached : times.begin;
    Add({id, begin, times.left, false, at_});
    if (task.kind == Task::Kind::kWait && times.begin > times.reached)
      WalkCollectives(t().collective_of[task.start]);
  }

  // Walks back along a collective's queue, to before the launch of the first one.
  void WalkCollectives(uint32_t number) {
    for (;;) {
      const CollectiveTimes& c = t().collectives[number];
      const NodeTimes& times = t().nodes[c.start.index()];
      Add({c.start, times.begin, times.end, true, at_});
      if (c.held.value > 0) number = GoToOtherEnd(c.start);
      const CollectiveTimes& launched = t().collectives[number];
      position_ = queues_[at_].position[launched.start.index()];
      if (launched.queued.value == 0) return;
      number = queues_[at_].before[number];
    }
  }

  // The collective that is the other end, in the graph that is the current one then.
  uint32_t GoToOtherEnd(NodeId id) {
    const TransferEnds& ends = *queues_[at_].transfer[id.index()];
    bool sends = at_ == ends.from && id == ends.send;
    at_ = sends ? ends.to : ends.from;
    return t().collective_of[(sends ? ends.receive : ends.send).index()];
  }

  void Add(const PathStep& step) {
    if (step.end == step.begin) return;
    (step.collective ? path_.collective : path_.compute) += step.end - step.begin;
    path_.steps.push_back(step);
  }

  std::span<const TimedGraph> graphs_;
  std::vector<Queues> queues_;
  // The current graph, and the number of nodes on its compute stream before the path so far.
  size_t at_ = 0;
  size_t position_ = 0;
  CriticalPath path_;
};

}  // namespace

CriticalPath FindCriticalPath(const SimGraph& graph, const Timeline& timeline) {
  TimedGraph timed{&graph, &timeline};
  return FindCriticalPath({&timed, 1}, {});
}

CriticalPath FindCriticalPath(std::span<const TimedGraph> graphs,
                              std::span<const TransferEnds> transfers) {
  return Walker(graphs, transfers).Run();
}

}  // namespace heddle::price
