#include "heddle/price/sim/timeline/coupled.h"

#include <algorithm>
#include <deque>

#include "heddle/price/sim/timeline/recorder.h"

namespace heddle::price {
namespace {

// One graph. Unlike a Stepper, it can stop in the middle of a node.
class Walker {
 public:
  Walker(const SimGraph& graph, const SimOptions& options, std::vector<NodeId> order)
      : graph_(graph),
        pace_(SimOptions::kWhole + options.slowdown),
        order_(std::move(order)),
        recorder_(graph, order_),
        coupled_(graph.size()),
        engine_(graph, options),
        time_(graph.around()) {
    engine_.Record(recorder_.engine_times());
    engine_.Couple(&coupled_);
  }

  void Couple(NodeId id) { coupled_[id.index()] = 1; }
  Engine& engine() { return engine_; }
  TimelineRecorder& recorder() { return recorder_; }
  bool ended() const { return position_ == order_.size(); }

  // When this graph changes its state next, if no other graph does before; kNever if it waits for
  // another one.
  Nanos Next() const {
    Nanos event = engine_.NextEvent();
    if (ended()) return event;
    if (part_ == Part::kWait) return engine_.done(Waited()) ? time_ : event;
    return std::min(event, time_ + Needed(event != Engine::kNever));
  }

  // Moves to `time`, which is not after Next().
  void MoveTo(Nanos time) {
    if (time > time_ && !ended() && part_ != Part::kWait) {
      bool slow = engine_.NextEvent() != Engine::kNever;
      Nanos passed = time - time_;
      work_ = passed >= Needed(slow) ? Nanos{}
              : slow                 ? work_ - Nanos{(passed * SimOptions::kWhole).value / pace_}
                                     : work_ - passed;
    }
    // A graph that has not begun is at the time of its first node.
    time_ = std::max(time_, time);
    engine_.AdvanceTo(time_);
  }

  // Runs nodes at this time until one of them takes time or has to wait.
  void Run() {
    while (!ended()) {
      const Task& task = graph_[order_[position_]];
      switch (part_) {
        case Part::kBegin:
          reached_ = began_ = time_;
          work_ = task.ahead;
          part_ = Part::kAhead;
          break;
        case Part::kAhead:
          if (work_.value > 0) return;
          if (task.kind == Task::Kind::kStart) engine_.Launch(order_[position_].index(), time_);
          part_ = Part::kWait;
          break;
        case Part::kWait:
          if (Waited() != Task::kNone && !engine_.done(Waited())) return;
          if (Waited() != Task::kNone) began_ = time_;
          work_ = task.compute;
          part_ = Part::kCompute;
          break;
        case Part::kCompute:
          if (work_.value > 0) return;
          recorder_.Add(order_[position_], reached_, began_ - reached_, time_);
          end_ = time_;
          part_ = Part::kBegin;
          ++position_;
          break;
      }
    }
  }

  Timeline Finish() { return recorder_.Finish(end_, engine_.now()); }

 private:
  enum class Part : uint8_t { kBegin, kAhead, kWait, kCompute };

  // The task that the node waits for, if any.
  uint32_t Waited() const {
    const Task& task = graph_[order_[position_]];
    return task.kind == Task::Kind::kWait ? task.start : Task::kNone;
  }
  Nanos Needed(bool slow) const {
    if (!slow) return work_;
    Nanos needed = work_ * pace_;
    return {needed.value / SimOptions::kWhole + (needed.value % SimOptions::kWhole != 0)};
  }

  const SimGraph& graph_;
  int64_t pace_;
  std::vector<NodeId> order_;
  TimelineRecorder recorder_;
  std::vector<uint8_t> coupled_;
  Engine engine_;
  Nanos time_;
  Nanos end_{graph_.around()};
  // The next node or the one that runs: its part, the work that is left of it, and its times.
  size_t position_ = 0;
  Part part_ = Part::kBegin;
  Nanos work_;
  Nanos reached_;
  Nanos began_;
};

class CoupledSimulator {
 public:
  CoupledSimulator(std::span<const SimGraph* const> graphs, std::span<const TransferEnds> transfers,
                   const SimOptions& options)
      : transfers_(transfers), state_(transfers.size()), transfer_of_(graphs.size()) {
    for (size_t i = 0; i < graphs.size(); ++i) {
      std::vector<NodeId> order;
      for (size_t node = 0; node < graphs[i]->size(); ++node) order.emplace_back(node);
      walkers_.emplace_back(*graphs[i], options, std::move(order));
      transfer_of_[i].resize(graphs[i]->size());
    }
    for (size_t i = 0; i < transfers.size(); ++i) {
      const TransferEnds& ends = transfers[i];
      walkers_[ends.from].Couple(ends.send);
      walkers_[ends.to].Couple(ends.receive);
      transfer_of_[ends.from][ends.send.index()] = static_cast<uint32_t>(i);
      transfer_of_[ends.to][ends.receive.index()] = static_cast<uint32_t>(i);
    }
  }

  std::vector<Timeline> Run() {
    std::vector<Nanos> next;
    for (const Walker& walker : walkers_) next.push_back(walker.Next());
    for (;;) {
      auto at = static_cast<size_t>(std::ranges::min_element(next) - next.begin());
      Nanos time = next[at];
      if (time == Engine::kNever) break;
      touched_ = {at};
      walkers_[at].MoveTo(time);
      walkers_[at].Run();
      Notify(at, time);
      for (size_t i : touched_) next[i] = walkers_[i].Next();
    }
    std::vector<Timeline> out;
    for (Walker& walker : walkers_) {
      HEDDLE_CHECK(walker.ended(), "coordinates that passed CheckTransfers wait for each other");
      out.push_back(walker.Finish());
    }
    return out;
  }

 private:
  struct State {
    uint8_t arrived = 0;
    uint8_t over = 0;
  };

  // Handles the notices of one engine, and the resulting ones of other engines.
  void Notify(size_t at, Nanos time) {
    for (const Engine::Notice& notice : walkers_[at].engine().TakeNotices()) {
      uint32_t number = transfer_of_[at][notice.task];
      const TransferEnds& ends = transfers_[number];
      State& state = state_[number];
      if (!notice.over) walkers_[at].recorder().AddArrival(notice.task, time);
      if (++(notice.over ? state.over : state.arrived) < 2) continue;
      size_t other = at == ends.from ? ends.to : ends.from;
      uint32_t there = (at == ends.from ? ends.receive : ends.send).index();
      walkers_[other].MoveTo(time);
      for (auto [walker, task] : {std::pair(at, notice.task), std::pair(other, there)}) {
        Engine& engine = walkers_[walker].engine();
        notice.over ? engine.Close(task) : engine.Open(task);
      }
      touched_.push_back(other);
      Notify(other, time);
      Notify(at, time);
    }
  }

  std::span<const TransferEnds> transfers_;
  std::vector<State> state_;
  // By graph and node.
  std::vector<std::vector<uint32_t>> transfer_of_;
  // Never moves, because engines refer to their members.
  std::deque<Walker> walkers_;
  std::vector<size_t> touched_;
};

}  // namespace

std::vector<Timeline> MakeCoupledTimelines(std::span<const SimGraph* const> graphs,
                                           std::span<const TransferEnds> transfers,
                                           const SimOptions& options) {
  return CoupledSimulator(graphs, transfers, options).Run();
}

}  // namespace heddle::price
