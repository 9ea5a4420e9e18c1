#include "heddle/compile/passes/overlap/order/list_scheduler.h"

#include <algorithm>

namespace heddle::compile {

using Role = ScheduleConstraints::Role;
using Collective = ScheduleConstraints::Collective;
constexpr uint32_t kNone = ScheduleConstraints::kNone;

ListScheduler::ListScheduler(const ScheduleConstraints& constraints, const price::SimGraph& sim)
    : constraints_(constraints),
      sim_(sim),
      needs_(sim.storage_count()),
      seen_(constraints.node_count()) {
  for (uint32_t node = 0; node < constraints.node_count(); ++node) {
    for (uint32_t storage : sim.needs(NodeId(node))) ++needs_[storage];
  }
  soonest_.push_back(sim.around());
  for (uint32_t anchor : constraints.anchors())
    soonest_.push_back(soonest_.back() + CostOf(anchor));
  SetLatestStarts();
}

void ListScheduler::Reset(const ListOptions& options, const ListedOrder* base) {
  options_ = options;
  out_ = {};
  out_.order.reserve(constraints_.node_count());
  out_.live.resize(constraints_.anchors().size());
  now_ = sim_.around();
  listed_.assign(constraints_.node_count(), false);
  reachable_.assign(constraints_.node_count(), false);
  open_.resize(constraints_.node_count());
  for (uint32_t node = 0; node < constraints_.node_count(); ++node)
    open_[node] = static_cast<uint32_t>(constraints_.before(node).size());
  streams_.assign(sim_.streams().size(), {});
  end_.assign(constraints_.collectives().size(), Nanos{-1});
  watched_.clear();
  free_waits_.clear();
  packed_.clear();
  deferred_.clear();
  first_deferred_ = 0;
  deferred_time_ = {};
  cursor_ = next_start_ = 0;
  live_ = most_live_ = sim_.inputs();
  needs_left_ = needs_;
  future_.clear();
  if (base != nullptr) future_.emplace_back(base->live);
}

// From the last deadline to the first: each collective of a stream must be done when it is needed,
// and before the next one must start.
void ListScheduler::SetLatestStarts() {
  latest_.assign(constraints_.collectives().size(), Nanos{INT64_MAX});
  std::vector<Queued> all;
  for (uint32_t c = 0; c < constraints_.collectives().size(); ++c) {
    if (!constraints_.collectives()[c].reduction)
      all.push_back({constraints_.collectives()[c].deadline, c});
  }
  std::ranges::sort(all, std::greater<>());
  std::vector<Nanos> next(sim_.streams().size(), Nanos{INT64_MAX});
  for (const Queued& queued : all) {
    const Collective& c = constraints_.collectives()[queued.collective];
    Nanos due = c.deadline == kNone ? Nanos{INT64_MAX} : soonest_[c.deadline];
    next[c.stream] = latest_[queued.collective] = std::min(due, next[c.stream]) - c.length;
  }
}

ListedOrder ListScheduler::Run(const ListOptions& options, const ListedOrder* base) {
  Reset(options, base);
  for (uint32_t node = 0; node < constraints_.node_count(); ++node) {
    if (open_[node] == 0 && !reachable_[node]) Ready(node);
  }
  KeepFirst(options.kept);
  for (; cursor_ < constraints_.anchors().size(); ++cursor_) {
    uint32_t anchor = constraints_.anchors()[cursor_];
    if (listed_[anchor]) continue;
    if (options_.move_compute && options_.most_deferred.value > 0 &&
        constraints_.deferrable(anchor)) {
      deferred_.push_back(anchor);
      out_.moved = true;
      deferred_time_ += CostOf(anchor);
      out_.most_deferred = std::max(out_.most_deferred, deferred_time_);
      while (deferred_time_ > options_.most_deferred) RunDeferred();
    } else {
      RunAnchor(anchor);
    }
  }
  while (first_deferred_ < deferred_.size()) RunDeferred();
  Fill({INT64_MAX});
  // Waits for reductions are in launch order, each where it is done.
  for (uint32_t c : std::vector<uint32_t>(watched_)) EmitWith(constraints_.collectives()[c].wait);
  for (uint32_t node = 0; node < constraints_.node_count(); ++node) {
    if (!listed_[node]) EmitWith(node);
  }
  return std::move(out_);
}

void ListScheduler::KeepFirst(uint32_t count) {
  for (uint32_t node = 0; node < std::min<size_t>(count, constraints_.node_count()); ++node) {
    Emit(node);
    if (constraints_.role(node) != Role::kAnchor) continue;
    cursor_ = constraints_.place(node) + 1;
    out_.live[constraints_.place(node)] = most_live_;
    most_live_ = live_;
  }
}

void ListScheduler::RunAnchor(uint32_t anchor) {
  std::vector<uint32_t> missing = Missing(anchor);
  // Starts needed collectives that have not been started.
  for (uint32_t node : missing) {
    if (!listed_[node] && constraints_.role(node) == Role::kStart &&
        CanStart(constraints_.collective_of(node)))
      Start(constraints_.collective_of(node));
  }
  while (options_.move_compute && first_deferred_ < deferred_.size() &&
         !constraints_.deferrable(anchor)) {
    Nanos stall = StallBefore(missing);
    uint32_t next = deferred_[first_deferred_];
    if (!listed_[next] && (stall * 2 < CostOf(next) || stall.value == 0)) break;
    RunDeferred();
  }
  if (options_.move_compute) RunAhead(missing);
  std::erase_if(missing, [&](uint32_t node) { return listed_[node]; });
  Nanos stall = StallBefore(missing);
  Nanos until = now_ + stall;
  Fill(until + CostOf(anchor));
  if (options_.ahead) {
    Unpack(until);
    Prepare(until);
  }
  Bytes born;
  Bytes passing;
  for (uint32_t node : missing) {
    if (listed_[node]) continue;
    born += sim_.born(NodeId(node));
    passing = std::max(passing, sim_.passing(NodeId(node)));
  }
  MakeRoom(born + passing);
  for (uint32_t node : missing) {
    if (!listed_[node] && node != anchor) Emit(node);
  }
  if (!listed_[anchor]) Emit(anchor);
  out_.live[constraints_.place(anchor)] = most_live_;
  most_live_ = live_;
  EmitDoneWaits();
}

void ListScheduler::Advance(uint32_t node) {
  const price::Task& task = sim_.tasks()[node];
  if (task.kind == price::Task::Kind::kStart) {
    now_ += task.ahead;
    Stream& stream = streams_[task.stream];
    stream.free = std::max(stream.free, now_) + task.alone();
    if (constraints_.role(node) == Role::kStart)
      end_[constraints_.collective_of(node)] = stream.free;
  } else if (constraints_.role(node) == Role::kWait) {
    now_ = std::max(now_, end_[constraints_.collective_of(node)]);
  }
  now_ += task.compute;
}

void ListScheduler::StartEarlierThan(uint32_t start) {
  while (next_start_ < constraints_.collectives().size()) {
    uint32_t earlier = constraints_.collectives()[next_start_].start;
    if (earlier >= start) return;
    ++next_start_;
    EmitWith(earlier);
  }
}

void ListScheduler::Emit(uint32_t node) {
  if (options_.strict && constraints_.role(node) == Role::kStart) StartEarlierThan(node);
  Advance(node);
  CountMemory(node);
  listed_[node] = true;
  out_.order.push_back(NodeId(node));
  if (constraints_.role(node) == Role::kWait) {
    std::erase(watched_, constraints_.collective_of(node));
    std::erase(free_waits_, constraints_.collective_of(node));
  }
  if (constraints_.role(node) == Role::kStart) {
    uint32_t number = constraints_.collective_of(node);
    const Collective& c = constraints_.collectives()[number];
    streams_[c.stream].queue.erase({c.deadline, number});
    streams_[c.stream].reductions.erase(number);
    if (c.wait != kNone && (c.reduction || c.feeds)) {
      watched_.push_back(number);
      if (c.feeds || CostOf(c.wait).value == 0) free_waits_.push_back(number);
    }
    if (c.wait != kNone && c.deadline != kNone && IsBucket(c)) packed_.push_back(number);
  }
  if (!reachable_[node]) Ready(node);
}

// Called when the node becomes ready or is listed: its successors have one less missing node.
// Followers are listed only on request.
void ListScheduler::Ready(uint32_t node) {
  ready_.assign(1, node);
  while (!ready_.empty()) {
    uint32_t at = ready_.back();
    ready_.pop_back();
    if (reachable_[at]) continue;
    if (!listed_[at] && constraints_.role(at) == Role::kStart) {
      uint32_t number = constraints_.collective_of(at);
      const Collective& c = constraints_.collectives()[number];
      if (c.reduction) {
        streams_[c.stream].reductions.insert(number);
      } else {
        streams_[c.stream].queue.insert({c.deadline, number});
      }
      continue;
    }
    if (!listed_[at] && constraints_.role(at) != Role::kFollower) continue;
    reachable_[at] = true;
    for (uint32_t later : constraints_.after(at)) {
      if (--open_[later] == 0) ready_.push_back(later);
    }
  }
}

std::vector<uint32_t> ListScheduler::Missing(uint32_t node) {
  std::vector<uint32_t> missing{node};
  ++walk_;
  seen_[node] = walk_;
  for (size_t i = 0; i < missing.size(); ++i) {
    for (uint32_t earlier : constraints_.before(missing[i])) {
      if (listed_[earlier] || seen_[earlier] == walk_) continue;
      seen_[earlier] = walk_;
      missing.push_back(earlier);
    }
  }
  std::ranges::sort(missing);
  return missing;
}

void ListScheduler::EmitWith(uint32_t node) {
  if (listed_[node]) return;
  for (uint32_t earlier : Missing(node)) {
    if (!listed_[earlier]) Emit(earlier);
  }
}

bool ListScheduler::IsFree(uint32_t node) {
  if (open_[node] == 0) return true;
  ++walk_;
  open_walk_.assign(1, node);
  for (size_t i = 0; i < open_walk_.size(); ++i) {
    for (uint32_t earlier : constraints_.before(open_walk_[i])) {
      if (listed_[earlier] || seen_[earlier] == walk_) continue;
      seen_[earlier] = walk_;
      if (constraints_.role(earlier) == Role::kWait) {
        Nanos end = end_[constraints_.collective_of(earlier)];
        if (end.value < 0 || end > now_) return false;
      } else if (constraints_.role(earlier) != Role::kFollower) {
        return false;
      }
      open_walk_.push_back(earlier);
    }
  }
  return true;
}

bool ListScheduler::CanStart(uint32_t collective) {
  if (options_.strict) {
    const std::vector<Collective>& all = constraints_.collectives();
    while (next_start_ < all.size() && listed_[all[next_start_].start]) ++next_start_;
    if (next_start_ != collective) return false;
  }
  return IsFree(constraints_.collectives()[collective].start);
}

void ListScheduler::Start(uint32_t collective) {
  const Collective& c = constraints_.collectives()[collective];
  if (!future_.empty() && c.deadline != kNone && c.deadline > cursor_)
    future_[0].Add(cursor_, c.deadline, c.held);
  EmitWith(c.start);
}

// Whether the other collective, or a later one, is late if the reduction goes first and compute
// never waits from now on.
bool ListScheduler::MakesLate(uint32_t reduction, uint32_t other) const {
  const Collective& c = constraints_.collectives()[reduction];
  Nanos done = std::max(now_, streams_[c.stream].free) + c.length;
  return done - now_ > latest_[other] - soonest_[cursor_];
}

bool ListScheduler::FillOne(Stream& stream) {
  constexpr int kLookAt = 4;
  uint32_t first = kNone;
  uint32_t chosen = kNone;
  int looked = 0;
  if (options_.ahead) {
    for (auto at = stream.queue.begin(); at != stream.queue.end() && looked < kLookAt; ++at) {
      ++looked;
      if (!CanStart(at->collective)) continue;
      const Collective& c = constraints_.collectives()[at->collective];
      if (c.deadline != kNone) {
        Nanos lead = latest_[at->collective] - soonest_[cursor_];
        if (lead > options_.lead) break;
        out_.longest_lead = std::max(out_.longest_lead, lead);
      }
      first = at->collective;
      // A collective that does not fit precedes all that are needed later.
      if (Fits(c.held + sim_.passing(NodeId(c.start)), c.deadline)) chosen = first;
      break;
    }
  }
  if (!stream.reductions.empty()) {
    uint32_t reduction = *stream.reductions.begin();
    bool late = first != kNone && MakesLate(reduction, first);
    if (!late && CanStart(reduction)) chosen = reduction;
  }
  if (chosen == kNone) return false;
  Start(chosen);
  return true;
}

void ListScheduler::Prepare(Nanos horizon) {
  constexpr int kLookAt = 64;
  if (now_ >= horizon) return;
  for (Stream& stream : streams_) {
    std::vector<uint32_t> next;
    for (const Queued& queued : stream.queue) {
      if (next.size() == kLookAt) break;
      next.push_back(queued.collective);
    }
    for (uint32_t number : next) {
      const Collective& c = constraints_.collectives()[number];
      if (now_ >= horizon || c.deadline == kNone) break;
      if (!CanStart(number)) continue;
      for (uint32_t node : Missing(c.start)) {
        Bytes more = sim_.born(NodeId(node));
        if (constraints_.role(node) != Role::kFollower || now_ + CostOf(node) > horizon) break;
        if (!Fits(more, c.deadline)) return;
        if (!future_.empty() && c.deadline > cursor_) future_[0].Add(cursor_, c.deadline, more);
        Emit(node);
      }
    }
  }
}

void ListScheduler::Unpack(Nanos horizon) {
  for (size_t i = 0; i < packed_.size();) {
    const Collective& c = constraints_.collectives()[packed_[i]];
    NodeId wait(c.wait);
    if (!listed_[c.wait]) {
      bool done = end_[packed_[i]] <= now_ && now_ + CostOf(c.wait) <= horizon;
      if (!done || !Fits(sim_.born(wait) + sim_.passing(wait), c.deadline)) {
        ++i;
        continue;
      }
      Emit(c.wait);
    }
    packed_.erase(packed_.begin() + static_cast<ptrdiff_t>(i));
  }
}

void ListScheduler::Fill(Nanos horizon) {
  for (Stream& stream : streams_) {
    while (std::max(stream.free, now_) < horizon && FillOne(stream)) {
    }
  }
}

void ListScheduler::EmitDoneWaits() {
  std::vector<uint32_t> done;
  for (uint32_t c : free_waits_) {
    if (end_[c] <= now_) done.push_back(c);
  }
  for (uint32_t c : done) EmitWith(constraints_.collectives()[c].wait);
}

}  // namespace heddle::compile
