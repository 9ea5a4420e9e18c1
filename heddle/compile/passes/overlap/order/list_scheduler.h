// ListScheduler: builds one order of a step from front to back, with a clock.
//
// Anchors run in sequence. Before each one, communicators that would become idle during it get
// their next collective: of the released ones, the one with the earliest deadline, if its memory
// fits under the limit until then. A reduction of gradients starts as soon as it makes no
// collective with a deadline late. A wait is right before its first reader. The wait for a
// reduction is where the reduction is done, if it takes no time, because it frees memory.
//
// While compute would wait, the scheduler unpacks received buckets, prepares inputs of later
// collectives, and runs deferred anchors, and later anchors that are movable and ready.
//
// The clock ignores shared links. The scheduler only proposes orders; a Replay measures them.
#pragma once

#include <set>
#include <vector>

#include "heddle/compile/passes/overlap/order/range_peaks.h"
#include "heddle/compile/passes/overlap/order/schedule_constraints.h"

namespace heddle::compile {

struct ListOptions {
  // The memory limit. The scheduler respects it where it can; the replay checks it.
  Bytes cap;
  // Start collectives before they are needed. Otherwise each starts right before its first reader.
  bool ahead = true;
  // The maximum time between the start of a collective and its latest start, if compute never
  // waited.
  Nanos lead{INT64_MAX};
  // Whether to run movable compute while compute would wait. Compute of at most `most_deferred` may
  // be put off until then.
  bool move_compute = false;
  Nanos most_deferred{};
  // The number of leading nodes that keep the graph's order.
  uint32_t kept = 0;
  // Whether collectives of all communicators start in the graph's order.
  bool strict = false;
};

struct ListedOrder {
  std::vector<NodeId> order;
  // Indexed by anchor: the maximum memory since the previous anchor.
  std::vector<Bytes> live;
  // The longest lead and the largest deferred time. Larger limits would not have changed the order.
  Nanos longest_lead{INT64_MIN};
  Nanos most_deferred;
  // Whether compute left its order.
  bool moved = false;
};

class ListScheduler {
 public:
  // Both must outlive this.
  ListScheduler(const ScheduleConstraints& constraints, const price::SimGraph& sim);

  // `base` is the order without early starts, with its memory at each anchor. Null to build that
  // order.
  ListedOrder Run(const ListOptions& options, const ListedOrder* base);

 private:
  struct Queued {
    uint32_t deadline;
    uint32_t collective;
    auto operator<=>(const Queued&) const = default;
  };
  struct Stream {
    Nanos free;
    // Released collectives that have not started: those with deadlines, and reductions.
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
  // Unlisted nodes that must precede `node`, and `node` itself, in graph order.
  std::vector<uint32_t> Missing(uint32_t node);
  void EmitWith(uint32_t node);
  // Starts collectives on communicators that would be idle before `horizon`.
  void Fill(Nanos horizon);
  bool FillOne(Stream& stream);
  // Whether `more` memory is available from now until an anchor.
  bool Fits(Bytes more, uint32_t deadline) const;
  bool MakesLate(uint32_t reduction, uint32_t other) const;
  // Computes inputs of later collectives until `horizon`.
  void Prepare(Nanos horizon);
  // Unpacks received buckets until `horizon`.
  void Unpack(Nanos horizon);
  bool IsBucket(const ScheduleConstraints::Collective& c) const {
    return sim_.tasks()[c.start].ahead.value > 0;
  }
  bool CanStart(uint32_t collective);
  // Whether only followers, and waits for completed collectives, must precede the node.
  bool IsFree(uint32_t node);
  void Start(uint32_t collective);
  void EmitDoneWaits();
  // In strict mode, starts unlisted collectives that precede `start` in the graph.
  void StartEarlierThan(uint32_t start);
  void MakeRoom(Bytes bytes);
  bool LetsGo(uint32_t node);
  Bytes Freed(uint32_t node) const;
  void RunAnchor(uint32_t anchor);
  Nanos StallBefore(const std::vector<uint32_t>& missing) const;
  void RunDeferred();
  // While compute would wait for missing nodes, runs later anchors that are ready.
  void RunAhead(const std::vector<uint32_t>& missing);
  Nanos CostOf(uint32_t node) const {
    return sim_.tasks()[node].compute + sim_.tasks()[node].ahead;
  }

  const ScheduleConstraints& constraints_;
  const price::SimGraph& sim_;
  ListOptions options_;
  ListedOrder out_;
  Nanos now_;
  std::vector<bool> listed_;
  // Indexed by node: the number of predecessors that are neither listed nor ready followers.
  std::vector<uint32_t> open_;
  std::vector<bool> reachable_;
  std::vector<Stream> streams_;
  // Indexed by collective: when it is done.
  std::vector<Nanos> end_;
  // Indexed by anchor: its begin if compute never waits. Indexed by collective: the latest start,
  // on that clock, that makes nothing late.
  std::vector<Nanos> soonest_;
  std::vector<Nanos> latest_;
  // In-flight reductions whose wait frees memory, and those of them whose wait takes no time.
  std::vector<uint32_t> watched_;
  std::vector<uint32_t> free_waits_;
  // Buckets in flight that are not unpacked, and that an anchor needs.
  std::vector<uint32_t> packed_;
  // Deferred anchors, in their order.
  std::vector<uint32_t> deferred_;
  size_t first_deferred_ = 0;
  Nanos deferred_time_;
  // The first collective in graph order that has not started.
  uint32_t next_start_ = 0;
  // The next anchor in order.
  uint32_t cursor_ = 0;
  // Current memory, and for each storage the number of remaining users.
  Bytes live_;
  Bytes most_live_;
  std::vector<uint32_t> needs_left_;
  std::vector<uint32_t> needs_;
  std::vector<RangePeaks> future_;
  // Scratch space of graph walks.
  std::vector<uint32_t> seen_;
  uint32_t walk_ = 0;
  std::vector<uint32_t> open_walk_;
  std::vector<uint32_t> ready_;
};

}  // namespace heddle::compile
