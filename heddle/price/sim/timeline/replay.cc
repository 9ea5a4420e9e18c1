#include "heddle/price/sim/timeline/replay.h"

#include <algorithm>

namespace heddle::price {
namespace {
// The minimum number of positions between saved states, and the positions of a block.
constexpr size_t kSpacing = 64;
}  // namespace

Replay::Replay(const SimGraph& graph, const SimOptions& options)
    : graph_(graph),
      stepper_(graph, options),
      live_(graph.size()),
      after_(graph.size()),
      block_peak_((graph.size() + kSpacing - 1) / kSpacing),
      last_need_(graph.storage_count()) {
  std::vector<NodeId> order;
  order.reserve(graph.size());
  for (size_t i = 0; i < graph.size(); ++i) order.emplace_back(i);
  Run(order);
}

const Outcome& Replay::Run(std::span<const NodeId> order) {
  HEDDLE_CHECK(order.size() == graph_.size(), "an order of another graph");
  order_.assign(order.begin(), order.end());
  marks_.clear();
  stepper_.Reset();
  marks_.push_back({0, stepper_.time(), {}, {}});
  ReplayTime(0, order_.size());
  std::ranges::fill(last_need_, 0U);
  ReplayMemory(0, order_.size());
  return outcome_;
}

const Outcome& Replay::Reorder(size_t first, std::span<const NodeId> nodes) {
  HEDDLE_CHECK(first + nodes.size() <= order_.size(), "a range beyond the order");
  std::ranges::copy(nodes, order_.begin() + static_cast<ptrdiff_t>(first));
  ReplayTime(first, first + nodes.size());
  ReplayMemory(first, first + nodes.size());
  return outcome_;
}

// Positions from `first` up to `last` have changed. Earlier ones are unchanged.
void Replay::ReplayTime(size_t first, size_t last) {
  auto after = std::ranges::upper_bound(marks_, first, {}, &Mark::position);
  auto mark = std::prev(after);
  stepper_.Restore(mark->state, mark->time);
  Nanos stalled = mark->stalled;
  size_t position = mark->position;
  auto next_mark = static_cast<size_t>(after - marks_.begin());
  // A whole run creates marks; others only update them. A large state is saved less often, so that
  // all states take memory linear in the graph.
  bool setting = marks_.size() == 1;
  size_t set_at = kSpacing;
  for (; position < order_.size(); ++position) {
    if (setting && position == set_at) {
      marks_.push_back({position, stepper_.time(), stalled, stepper_.Save()});
      set_at = position + kSpacing + marks_.back().state.size();
    } else if (next_mark < marks_.size() && marks_[next_mark].position == position) {
      Mark& old = marks_[next_mark++];
      Engine::State state = stepper_.Save();
      if (position >= last && state == old.state) {
        Nanos shift = stepper_.time() - old.time;
        Nanos more = stalled - old.stalled;
        for (size_t i = next_mark - 1; i < marks_.size(); ++i) {
          marks_[i].time += shift;
          marks_[i].stalled += more;
        }
        outcome_.makespan += shift;
        outcome_.exposed += more;
        // As at the end of a whole run: a later replay that begins after this position finds all
        // earlier collectives finished.
        stepper_.engine().Abandon();
        return;
      }
      old = {position, stepper_.time(), stalled, std::move(state)};
    }
    stalled += stepper_.Step(order_[position]);
  }
  Finish(stalled);
}

void Replay::Finish(Nanos stalled) {
  Nanos drained = stepper_.engine().Drain();
  outcome_.makespan = std::max(stepper_.time(), drained);
  outcome_.exposed = stalled + (outcome_.makespan - stepper_.time());
}

void Replay::ReplayMemory(size_t first, size_t last) {
  // A storage that ended in the range still ends there, because its last user stays in the range.
  for (size_t position = first; position < last; ++position) {
    for (uint32_t storage : graph_.needs(order_[position])) {
      if (last_need_[storage] < last) last_need_[storage] = static_cast<uint32_t>(position);
    }
  }
  Bytes live = first == 0 ? graph_.inputs() : after_[first - 1];
  for (size_t position = first; position < last; ++position) {
    live += graph_.born(order_[position]);
    live_[position] = live + graph_.passing(order_[position]);
    for (uint32_t storage : graph_.needs(order_[position])) {
      if (last_need_[storage] == position) live -= graph_.storage_bytes(storage);
    }
    after_[position] = live;
  }
  FindPeak(first, last);
}

void Replay::FindPeak(size_t first, size_t last) {
  for (size_t block = first / kSpacing; block * kSpacing < last; ++block) {
    auto begin = live_.begin() + static_cast<ptrdiff_t>(block * kSpacing);
    auto end =
        live_.begin() + static_cast<ptrdiff_t>(std::min(live_.size(), (block + 1) * kSpacing));
    block_peak_[block] = *std::max_element(begin, end);
  }
  outcome_.peak = block_peak_.empty() ? graph_.inputs()
                                      : *std::max_element(block_peak_.begin(), block_peak_.end());
}

}  // namespace heddle::price
