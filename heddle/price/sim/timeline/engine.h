// Engine: communicators and links. Collectives launch on their stream in the order in which they
// are added, and concurrent ones share the links that they use.
//
// The caller sets the time, which only increases. Work on a link is counted in whole nanoseconds at
// full rate: k transfers that share it each get 1/k.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "heddle/price/sim/timeline/sim_graph.h"

namespace heddle::price {

class Engine {
 public:
  // When each started task got its stream, and when it ended. Indexed by task.
  struct Times {
    std::vector<Nanos> begin;
    std::vector<Nanos> end;
  };
  // A coupled task is one end of a transfer that another engine has the other end of. It waits at
  // the head of its stream until Open, and ends at Close.
  struct Notice {
    uint32_t task;
    // Its own transfer is over; otherwise it has reached the head of its stream.
    bool over;
  };

  Engine(const SimGraph& graph, const SimOptions& options);

  // Clears everything and sets the time to 0.
  void Reset();
  void Record(Times* times) { times_ = times; }
  // Indexed by task. Must outlive this.
  void Couple(const std::vector<uint8_t>* coupled) { coupled_ = coupled; }
  // Returns the notices since the last call, in order.
  std::vector<Notice> TakeNotices() { return std::exchange(notices_, {}); }
  void Open(uint32_t task);
  void Close(uint32_t task);

  // `time` must not be before that of an earlier call.
  void AdvanceTo(Nanos time);
  void Launch(uint32_t task, Nanos time);
  bool done(uint32_t task) const { return done_[task] != 0; }
  // Advances until `task`, which was launched, is done. Returns its end.
  Nanos Finish(uint32_t task);
  // Advances until nothing is in flight. Returns that time.
  Nanos Drain();

  Nanos now() const { return now_; }
  bool busy() const { return !busy_.empty(); }
  // The time of the next event; kNever without one.
  static constexpr Nanos kNever{INT64_MAX};
  Nanos NextEvent() const;

  // The tasks in flight, with times relative to now. Equal states have equal futures.
  struct State {
    struct Active {
      uint32_t task;
      bool flows;
      Nanos left;
      bool operator==(const Active&) const = default;
    };
    // Indexed by stream; then the queued tasks by stream, in order.
    std::vector<Active> active;
    std::vector<uint32_t> queued;
    std::array<int64_t, 3> carry{};

    bool operator==(const State&) const = default;
    size_t size() const { return active.size() + queued.size(); }
  };
  State Save() const;
  // Sets the state at time `now`. Tasks that it does not name keep their result of done().
  void Restore(const State& state, Nanos now);
  // Marks all tasks in flight as done.
  void Abandon();

 private:
  struct Event {
    // A time, or a position on a clock.
    Nanos at;
    uint32_t task;
    // Reversed, for heaps with the smallest event first.
    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : task > other.task;
    }
  };
  // Transfers over the same links. All progress at the same rate, so one clock counts their work.
  struct Flow {
    std::vector<Event> heap;
    Nanos clock;
    // Nanoseconds that were too few to advance the clock.
    int64_t carry = 0;
    // Transfers that share the busiest of its links.
    int64_t sharing = 1;
  };
  struct Stream {
    // The task in flight, and the last queued task.
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
  // Appends to its stream. Returns whether the stream was idle.
  bool Enqueue(uint32_t task);
  bool Coupled(uint32_t task) const { return coupled_ != nullptr && (*coupled_)[task] != 0; }
  void Begin(uint32_t task);
  void BeginWork(uint32_t task);
  void BeginTransfer(uint32_t task);
  void End(uint32_t task);
  void LeaveStream(uint32_t task);
  void MoveClocks(Nanos time);
  void CountSharing();
  void HandleEventsAt(Nanos time);
  Nanos EndOf(const Flow& flow) const;

  const SimGraph& graph_;
  bool share_links_;
  Nanos now_;
  Times* times_ = nullptr;
  const std::vector<uint8_t>* coupled_ = nullptr;
  std::vector<Notice> notices_;
  std::vector<uint8_t> done_;
  std::vector<Stream> streams_;
  // Streams with work, in any order.
  std::vector<uint32_t> busy_;
  // By task: the next on the same stream.
  std::vector<uint32_t> next_;
  // Ends of phases that share no link: packing and latency before a transfer, copies.
  std::vector<Event> plain_;
  // Transfers within a node, over the network, and over both.
  std::array<Flow, 3> flows_;
};

}  // namespace heddle::price
