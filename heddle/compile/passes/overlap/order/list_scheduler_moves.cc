// Moving compute in the list scheduler.
#include <algorithm>

#include "heddle/compile/passes/overlap/order/list_scheduler.h"

namespace heddle::compile {

using Role = ScheduleConstraints::Role;

void ListScheduler::RunDeferred() {
  uint32_t anchor = deferred_[first_deferred_++];
  if (listed_[anchor]) return;
  deferred_time_ -= CostOf(anchor);
  RunAnchor(anchor);
}

// The time for which compute would wait for the missing nodes.
Nanos ListScheduler::StallBefore(const std::vector<uint32_t>& missing) const {
  Nanos until = now_;
  for (uint32_t node : missing) {
    if (constraints_.role(node) != Role::kWait) continue;
    uint32_t c = constraints_.collective_of(node);
    if (end_[c].value >= 0) until = std::max(until, end_[c]);
  }
  return until - now_;
}

void ListScheduler::RunAhead(const std::vector<uint32_t>& missing) {
  constexpr uint32_t kLookAt = 128;
  auto last = static_cast<uint32_t>(constraints_.anchors().size());
  last = std::min(last, cursor_ + kLookAt);
  for (uint32_t place = cursor_ + 1; place < last; ++place) {
    uint32_t anchor = constraints_.anchors()[place];
    Nanos stall = StallBefore(missing);
    if (stall.value == 0) return;
    if (listed_[anchor] || !constraints_.moves(anchor)) continue;
    if (stall * 2 < CostOf(anchor) || !IsFree(anchor)) continue;
    Bytes born;
    std::vector<uint32_t> chain = Missing(anchor);
    for (uint32_t node : chain) born += sim_.born(NodeId(node));
    if (!Fits(born, place)) continue;
    if (!future_.empty()) future_[0].Add(cursor_, place, born);
    for (uint32_t node : chain) {
      if (!listed_[node]) Emit(node);
    }
    out_.moved = true;
  }
}

}  // namespace heddle::compile
