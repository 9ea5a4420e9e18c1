// ListScheduler: one order of a step, made from front to back with a clock.
//
// Anchors run one after the other. Before each, communicators that would fall idle while it runs get their next collective: of
// those that are released, the one with the earliest deadline, if what it holds fits under the cap up to that deadline. Gradients
// are reduced as soon as nothing with a deadline would be late for it. A wait stands right before the first that needs it; that of
// a reduction where it is done, if that takes no time, because it lets go of memory there. While compute would stand still,
// buckets that are there are taken apart, and what later collectives are given is made.
//
// Where compute would stand still, anchors run that were put off, and later ones that move and need not wait.
//
// The clock knows no shared links: it decides, and a Replay judges.
#pragma once

#include <set>
#include <vector>

#include "heddle/compile/passes/overlap/order/range_peaks.h"
#include "heddle/compile/passes/overlap/order/step_shape.h"

namespace heddle::compile {

struct ListOptions {
  // What the schedule may use. Kept where the scheduler can: the judge knows.
  Bytes cap;
  // Start collectives ahead of need. Otherwise each starts where the first that needs it stands.
  bool ahead = true;
  // At most so long before it would be late, if compute never stood still.
  Nanos lead{INT64_MAX};
  // Where compute would stand still, run compute that moves; at most so much may be put off until then.
  bool move_compute = false;
  Nanos most_deferred{};
  // So many nodes stand as in the graph.
  uint32_t kept = 0;
  // Collectives of all communicators start in the order of the graph.
  bool strict = false;
};

struct ListedOrder {
  std::vector<NodeId> order;
  // By anchor: the most alive since the anchor before it.
  std::vector<Bytes> live;
  // The longest lead, and the most that was put off: larger bounds would have changed nothing.
  Nanos longest_lead{INT64_MIN};
  Nanos most_deferred;
  // Compute left its order.
  bool moved = false;
};

class ListScheduler {
 public:
  // Both outlive this.
  ListScheduler(const StepShape& shape, const price::SimGraph& sim);

  // `base` is an order without anything ahead: what is alive at each anchor then. Null for that order itself.
  ListedOrder Run(const ListOptions& options, const ListedOrder* base);

 private:
  struct Queued {
    uint32_t deadline;
    uint32_t collective;
    auto operator<=>(const Queued&) const = default;
  };
  struct Stream {
    Nanos free;
    // Released and not started: those with a deadline to keep, and reductions.
    std::set<Queued> queue;
    std::set<uint32_t> reductions;
  };

  void Reset(const ListOptions& options, const ListedOrder* base);
  void SetLatestStarts();
  void KeepFirst(uint32_t count);
  void Advance(uint32_t node);
  void Emit(uint32_t node);
  void CountMemory(uint32_t node);
  void Ready(uint32_t node);
  // Nodes that are not listed yet and must come before `node`, itself included, in the order of the graph.
  std::vector<uint32_t> Missing(uint32_t node);
  void EmitWith(uint32_t node);
  // Starts what would run before `horizon`.
  void Fill(Nanos horizon);
  bool FillOne(Stream& stream);
  // Whether so much more may be alive from now until an anchor.
  bool Fits(Bytes more, uint32_t deadline) const;
  bool MakesLate(uint32_t reduction, uint32_t other) const;
  // Makes what later collectives are given, until `horizon`.
  void Prepare(Nanos horizon);
  // Takes buckets that are there apart, until `horizon`.
  void Unpack(Nanos horizon);
  bool IsBucket(const StepShape::Collective& c) const {
    return sim_.tasks()[c.start].ahead.value > 0;
  }
  bool CanStart(uint32_t collective);
  // Nothing but followers, and waits for what is done, stand before the node.
  bool IsFree(uint32_t node);
  void Start(uint32_t collective);
  void EmitDoneWaits();
  // In strict mode, starts of the graph up to `start` that are not listed.
  void StartEarlierThan(uint32_t start);
  void MakeRoom(Bytes bytes);
  bool LetsGo(uint32_t node);
  Bytes Freed(uint32_t node) const;
  void RunAnchor(uint32_t anchor);
  Nanos StallBefore(const std::vector<uint32_t>& missing) const;
  void RunDeferred();
  // While compute would stand still for what is missing, runs what comes later and need not wait.
  void RunAhead(const std::vector<uint32_t>& missing);
  Nanos CostOf(uint32_t node) const {
    return sim_.tasks()[node].compute + sim_.tasks()[node].ahead;
  }

  const StepShape& shape_;
  const price::SimGraph& sim_;
  ListOptions options_;
  ListedOrder out_;
  Nanos now_;
  std::vector<bool> listed_;
  // By node: how many that must come before are neither listed nor followers that could be.
  std::vector<uint32_t> open_;
  std::vector<bool> reachable_;
  std::vector<Stream> streams_;
  // By collective: when it is done.
  std::vector<Nanos> end_;
  // By anchor, when it begins if compute never stands still; by collective, the latest start by that clock that makes nothing late.
  std::vector<Nanos> soonest_;
  std::vector<Nanos> latest_;
  // Started, not waited for, and worth to wait for once done; of those, what is waited for in no time.
  std::vector<uint32_t> watched_;
  std::vector<uint32_t> free_waits_;
  // Buckets that were started, and not taken apart, and that an anchor needs.
  std::vector<uint32_t> packed_;
  // Anchors that were put off, in their order.
  std::vector<uint32_t> deferred_;
  size_t first_deferred_ = 0;
  Nanos deferred_time_;
  // Of the collectives in the order of the graph, the first that has not started.
  uint32_t next_start_ = 0;
  // The anchor that is next in order.
  uint32_t cursor_ = 0;
  // Memory now, and what of each storage's needs is still open.
  Bytes live_;
  Bytes most_live_;
  std::vector<uint32_t> needs_left_;
  std::vector<uint32_t> needs_;
  std::vector<RangePeaks> future_;
  // For walks.
  std::vector<uint32_t> seen_;
  uint32_t walk_ = 0;
  std::vector<uint32_t> open_walk_;
  std::vector<uint32_t> ready_;
};

}  // namespace heddle::compile
