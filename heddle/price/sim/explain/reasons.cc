#include "heddle/price/sim/explain/reasons.h"

#include <algorithm>

#include "heddle/core/analysis/launch.h"
#include "heddle/price/sim/explain/movable.h"

namespace heddle::price {
namespace {

constexpr std::string_view kNames[] = {"dependence", "schedule", "memory", "order",
                                       "link",       "bubble",   "hop"};

// Range maxima, by blocks.
class RangeMost {
 public:
  explicit RangeMost(const std::vector<Bytes>& values) : values_(values) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (i % kBlock == 0) blocks_.push_back(values[i]);
      blocks_.back() = std::max(blocks_.back(), values[i]);
    }
  }
  // The maximum of [first, last); 0 for an empty range.
  Bytes Of(size_t first, size_t last) const {
    Bytes most{0};
    while (first < last) {
      bool whole = first % kBlock == 0 && first + kBlock <= last;
      most = std::max(most, whole ? blocks_[first / kBlock] : values_[first]);
      first += whole ? kBlock : 1;
    }
    return most;
  }

 private:
  static constexpr size_t kBlock = 256;

  const std::vector<Bytes>& values_;
  std::vector<Bytes> blocks_;
};

class Explainer {
 public:
  Explainer(const Graph& graph, const SimGraph& sim, const Timeline& timeline,
            std::optional<Bytes> cap)
      : graph_(graph),
        sim_(sim),
        t_(timeline),
        cap_(cap),
        position_(graph.node_count()),
        movable_(FindMovable(graph)) {
    for (size_t i = 0; i < t_.order.size(); ++i) position_[t_.order[i].index()] = i;
    // No movable storage is larger than the peak.
    if (cap_ && t_.peak + t_.peak <= *cap_) cap_.reset();
    if (cap_) most_.emplace(t_.live);
    FindReady();
    FindNeeded();
    FindWork();
    FindLastNeeds();
  }

  Exposure Explain(const CollectiveTimes& c) const {
    Exposure exposure;
    auto take = [&](Reason reason, Nanos part) {
      exposure.by_reason[static_cast<size_t>(reason)] = part;
      return part;
    };
    Nanos rest = c.exposed;
    if (IsTransfer(graph_, c.start)) {
      Nanos begin = t_.nodes[c.start.index()].begin;
      Nanos idle = c.wait ? t_.nodes[c.wait.index()].reached : begin;
      rest -= take(Reason::kBubble, std::clamp(begin - idle, Nanos{}, rest));
      take(Reason::kHop, rest);
      return exposure;
    }
    rest -= take(Reason::kLink, std::min(rest, c.shared));
    rest -= take(Reason::kOrder, std::min(rest, c.queued));
    if (rest.value == 0) return exposure;
    Room room = RoomOf(c);
    rest -= take(Reason::kSchedule, std::min(rest, room.free));
    rest -= take(Reason::kMemory, std::min(rest, room.blocked));
    take(Reason::kDependence, rest);
    return exposure;
  }

 private:
  // Nodes that take no time move together with their dependences.
  bool Free(NodeId id) const {
    return sim_[id].kind == Task::Kind::kCompute && sim_[id].compute.value == 0;
  }

  // Indexed by node: one past the position at which its operands are, or could be, available.
  void FindReady() {
    ready_.resize(graph_.node_count());
    for (NodeId id : t_.order) {
      for (ValueId value : graph_.operands(id)) {
        NodeId producer = value ? graph_[value].producer : NodeId();
        if (!producer || movable_[producer.index()]) continue;
        size_t there = Free(producer) ? ready_[producer.index()] : position_[producer.index()] + 1;
        ready_[id.index()] = std::max(ready_[id.index()], there);
      }
    }
  }

  // Indexed by node: the position of the first timed node that needs its results; the end for
  // outputs. Computed backwards, from users to operands.
  void FindNeeded() {
    needed_.assign(graph_.node_count(), t_.order.size());
    for (size_t i = t_.order.size(); i-- > 0;) {
      NodeId id = t_.order[i];
      size_t by = Free(id) ? needed_[id.index()] : i;
      for (ValueId value : graph_.operands(id)) {
        NodeId producer = value ? graph_[value].producer : NodeId();
        if (producer) needed_[producer.index()] = std::min(needed_[producer.index()], by);
      }
    }
  }

  // Compute before each position that can hide a collective. Movable nodes move with the gathers
  // that they feed.
  void FindWork() {
    work_.reserve(t_.order.size() + 1);
    work_.push_back({});
    for (NodeId id : t_.order) {
      const NodeTimes& times = t_.nodes[id.index()];
      bool hides = sim_[id].kind != Task::Kind::kStart && !movable_[id.index()];
      work_.push_back(work_.back() + (hides ? times.end - times.begin : Nanos{0}));
    }
  }

  void FindLastNeeds() {
    last_need_.resize(sim_.storage_count());
    for (size_t i = 0; i < t_.order.size(); ++i) {
      for (uint32_t storage : sim_.needs(t_.order[i])) last_need_[storage] = i;
    }
  }

  // The compute that the start could precede and the wait could follow, and the part that memory
  // forbids.
  struct Room {
    Nanos free;
    Nanos blocked;
  };
  Room RoomOf(const CollectiveTimes& c) const {
    Room room;
    auto add = [&](Nanos time, bool fits) {
      if (time.value > 0) (fits ? room.free : room.blocked) += time;
    };
    size_t start = position_[c.start.index()];
    size_t ready = ready_[c.start.index()];
    add(work_[start] - work_[ready], Fits(ready, start, sim_.born(c.start)));
    if (!c.wait) return room;
    size_t wait = position_[c.wait.index()];
    size_t needed = needed_[c.wait.index()];
    add(work_[needed] - work_[wait + 1], Fits(wait + 1, needed, HeldByWait(c.wait)));
    return room;
  }

  // Bytes that a later wait would keep alive.
  Bytes HeldByWait(NodeId wait) const {
    Bytes held;
    for (uint32_t storage : sim_.needs(wait)) {
      if (last_need_[storage] == position_[wait.index()]) held += sim_.storage_bytes(storage);
    }
    return held;
  }

  bool Fits(size_t first, size_t last, Bytes more) const {
    return !cap_ || most_->Of(first, last) + more <= *cap_;
  }

  const Graph& graph_;
  const SimGraph& sim_;
  const Timeline& t_;
  std::optional<Bytes> cap_;
  std::vector<size_t> position_;
  std::vector<bool> movable_;
  std::vector<size_t> ready_;
  std::vector<size_t> needed_;
  std::vector<Nanos> work_;
  std::vector<size_t> last_need_;
  std::optional<RangeMost> most_;
};

}  // namespace

std::string_view Name(Reason reason) { return kNames[static_cast<size_t>(reason)]; }

Reason Exposure::main() const {
  return static_cast<Reason>(std::ranges::max_element(by_reason) - by_reason.begin());
}

std::vector<Exposure> ExplainExposure(const Graph& graph, const SimGraph& sim,
                                      const Timeline& timeline, std::optional<Bytes> cap) {
  Explainer explainer(graph, sim, timeline, cap);
  std::vector<Exposure> list;
  for (const CollectiveTimes& c : timeline.collectives) list.push_back(explainer.Explain(c));
  return list;
}

}  // namespace heddle::price
