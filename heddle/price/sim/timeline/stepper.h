// Stepper: walks an order of nodes along the compute stream.
#pragma once

#include "heddle/price/sim/timeline/engine.h"

namespace heddle::price {

class Stepper {
 public:
  Stepper(const SimGraph& graph, const SimOptions& options)
      : graph_(graph),
        slowdown_(options.slowdown),
        engine_(graph, options),
        time_(graph.around()) {}

  // Returns to the state before the first node.
  void Reset() {
    engine_.Reset();
    time_ = graph_.around();
  }

  // Runs the next node from time() on. Returns the time that it waited.
  Nanos Step(NodeId id) {
    const Task& task = graph_[id];
    Nanos stalled;
    if (task.kind == Task::Kind::kStart) {
      if (task.ahead.value > 0) Work(task.ahead);
      engine_.Launch(id.index(), time_);
    } else if (task.kind == Task::Kind::kWait && task.start != Task::kNone &&
               !engine_.done(task.start)) {
      Nanos end = engine_.Finish(task.start);
      if (end > time_) {
        stalled = end - time_;
        time_ = end;
      }
    }
    Work(task.compute);
    return stalled;
  }

  // Time of the compute stream.
  Nanos time() const { return time_; }
  Engine& engine() { return engine_; }
  void Restore(const Engine::State& state, Nanos time) {
    engine_.Restore(state, time);
    time_ = time;
  }
  // Advances the engine to time().
  Engine::State Save() {
    engine_.AdvanceTo(time_);
    return engine_.Save();
  }

 private:
  void Work(Nanos work) {
    if (slowdown_ == 0) {
      time_ += work;
    } else {
      Compute(work);
    }
  }
  // Slower while a collective is in flight.
  void Compute(Nanos work);

  const SimGraph& graph_;
  int64_t slowdown_;
  Engine engine_;
  Nanos time_;
};

}  // namespace heddle::price
