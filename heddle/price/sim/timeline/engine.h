// Engine: communicators and links. Collectives launch on their stream in the order in which they are given to it, and those
// under way at the same time share the links that they use.
//
// Time is given from outside and only moves on. Work on a link is counted in whole nanoseconds at full rate: of k transfers that
// share it, each does a k-th.
#pragma once

#include <array>
#include <vector>

#include "heddle/price/sim/timeline/sim_graph.h"

namespace heddle::price {

class Engine {
 public:
  // When each started task had its stream to itself, and when it was done. By task.
  struct Times {
    std::vector<Nanos> begin;
    std::vector<Nanos> end;
  };

  Engine(const SimGraph& graph, const SimOptions& options);

  // Nothing is under way and nothing was ever started; time is 0.
  void Reset();
  void Record(Times* times) { times_ = times; }

  // `time` never lies before that of an earlier call.
  void AdvanceTo(Nanos time);
  void Launch(uint32_t task, Nanos time);
  bool done(uint32_t task) const { return done_[task] != 0; }
  // Moves on until `task`, which was launched, is done; when that was.
  Nanos Finish(uint32_t task);
  // Moves on until nothing is under way; when that was.
  Nanos Drain();

  Nanos now() const { return now_; }
  bool busy() const { return !busy_.empty(); }
  // When the next thing happens by itself. Only while busy.
  Nanos NextEvent() const;

  // What is under way, with times from now on: equal states have equal futures.
  struct State {
    struct Active {
      uint32_t task;
      bool flows;
      Nanos left;
      bool operator==(const Active&) const = default;
    };
    // By stream; then what is queued behind, by stream, and in its order.
    std::vector<Active> active;
    std::vector<uint32_t> queued;
    std::array<int64_t, 3> carry{};

    bool operator==(const State&) const = default;
    size_t size() const { return active.size() + queued.size(); }
  };
  State Save() const;
  // Takes `state` for that of time `now`. Tasks that it does not name keep their answer to done().
  void Restore(const State& state, Nanos now);
  // Whatever is under way counts as done.
  void Abandon();

 private:
  struct Event {
    // A time, or a position on a clock.
    Nanos at;
    uint32_t task;
    // For heaps that give the least first.
    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : task > other.task;
    }
  };
  // Transfers over the same links. All move on at the same pace: one clock counts what each has done.
  struct Flow {
    std::vector<Event> heap;
    Nanos clock;
    // Nanoseconds that were too few to move the clock.
    int64_t carry = 0;
    // Transfers that share the busiest of its links.
    int64_t sharing = 1;
  };
  struct Stream {
    // The task under way, and the last of those behind it.
    uint32_t head = Task::kNone;
    uint32_t tail = Task::kNone;
    uint32_t busy_at = 0;
  };

  static size_t FlowOf(Links links) { return static_cast<size_t>(links) - 1; }
  // Whether the task has a transfer that others may slow down.
  bool Shares(uint32_t task) const {
    const Task& what = graph_.tasks()[task];
    return share_links_ && what.links != Links::kNone && what.transfer.value > 0;
  }
  // Puts it at the end of its stream; whether the stream was idle.
  bool Enqueue(uint32_t task);
  void Begin(uint32_t task);
  void BeginTransfer(uint32_t task);
  void End(uint32_t task);
  void MoveClocks(Nanos time);
  void CountSharing();
  void HandleEventsAt(Nanos time);
  Nanos EndOf(const Flow& flow) const;

  const SimGraph& graph_;
  bool share_links_;
  Nanos now_;
  Times* times_ = nullptr;
  std::vector<uint8_t> done_;
  std::vector<Stream> streams_;
  // Streams with work, in any order.
  std::vector<uint32_t> busy_;
  // By task: the next on the same stream.
  std::vector<uint32_t> next_;
  // Ends of what shares nothing: packing and latency before a transfer, copies.
  std::vector<Event> plain_;
  // Over links in a node, over the network, over both.
  std::array<Flow, 3> flows_;
};

}  // namespace heddle::price
