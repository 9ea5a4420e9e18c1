// Memory in the list scheduler.
#include <algorithm>

#include "heddle/compile/passes/overlap/order/list_scheduler.h"

namespace heddle::compile {

using Collective = ScheduleConstraints::Collective;

void ListScheduler::CountMemory(uint32_t node) {
  live_ += sim_.born(NodeId(node));
  most_live_ = std::max(most_live_, live_ + sim_.passing(NodeId(node)));
  for (uint32_t storage : sim_.needs(NodeId(node))) {
    if (--needs_left_[storage] == 0) live_ -= sim_.storage_bytes(storage);
  }
}

bool ListScheduler::Fits(Bytes more, uint32_t deadline) const {
  if (live_ + more > options_.cap) return false;
  if (deadline <= cursor_ || future_.empty()) return true;
  size_t last = std::min<size_t>(deadline, constraints_.anchors().size());
  return future_[0].Most(cursor_, last) + more <= options_.cap;
}

// First frees memory at no cost: waits for completed reductions, and runs deferred compute that
// frees more than it allocates. Then waits for other reductions, and finally runs all deferred
// compute.
void ListScheduler::MakeRoom(Bytes bytes) {
  auto full = [&] { return live_ + bytes > options_.cap; };
  if (!full()) return;
  for (Stream& stream : streams_) {
    for (uint32_t c : std::set<uint32_t>(stream.reductions)) {
      if (!full()) return;
      if (CanStart(c)) Start(c);
    }
  }
  auto wait = [&](bool done) {
    for (uint32_t c : std::vector<uint32_t>(watched_)) {
      if (!full()) return;
      const Collective& one = constraints_.collectives()[c];
      if (!one.reduction || (done && end_[c] > now_)) continue;
      if (Freed(one.wait) > sim_.born(NodeId(one.wait))) EmitWith(one.wait);
    }
  };
  wait(true);
  for (size_t i = first_deferred_; i < deferred_.size() && full(); ++i) {
    if (listed_[deferred_[i]] || !LetsGo(deferred_[i])) continue;
    deferred_time_ -= CostOf(deferred_[i]);
    EmitWith(deferred_[i]);
  }
  wait(false);
  while (full() && first_deferred_ < deferred_.size()) {
    uint32_t anchor = deferred_[first_deferred_++];
    if (listed_[anchor]) continue;
    deferred_time_ -= CostOf(anchor);
    EmitWith(anchor);
  }
}

// Bytes for which the node is the last user.
Bytes ListScheduler::Freed(uint32_t node) const {
  Bytes freed;
  for (uint32_t storage : sim_.needs(NodeId(node)))
    if (needs_left_[storage] == 1) freed += sim_.storage_bytes(storage);
  return freed;
}

// Whether memory decreases when the node runs.
bool ListScheduler::LetsGo(uint32_t node) {
  Bytes born;
  Bytes freed;
  for (uint32_t missing : Missing(node)) {
    born += sim_.born(NodeId(missing));
    freed += Freed(missing);
  }
  return freed > born;
}

}  // namespace heddle::compile
