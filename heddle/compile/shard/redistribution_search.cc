#include "heddle/compile/shard/redistribution_search.h"

#include <algorithm>
#include <utility>

#include "heddle/compile/shard/axis_state.h"

namespace heddle::compile {
namespace {

// The maximum of Place::step. It exceeds the number of lists of pending sums, for all ends.
constexpr size_t kMostStep = (size_t{1} << 15) - 1;

bool IsSliceOf(const RedistributionGraph::Step& step, uint8_t end) {
  return !step.kind && step.end == end;
}

}  // namespace

RedistributionSearch::RedistributionSearch(RedistributionGraph& graph, PackedPlacement from,
                                           uint8_t goal_axes, ReduceOrder order)
    : graph_(graph), goal_axes_(goal_axes), order_(order) {
  uint32_t start = graph_.NumberOf(from);
  places_.resize(graph_.size());
  Reach(start, {}, kNone, 0);
}

void RedistributionSearch::Reach(uint32_t at, const Price& price, uint32_t before, size_t step) {
  Place& place = places_[at];
  reached_count_ += place.collectives == Place::kUnreached ? 1 : 0;
  place = {.moved = price.moved,
           .before = before,
           .step = static_cast<uint16_t>(step & kMostStep),
           .collectives = price.collectives,
           .steps = price.steps};
  open_.push_back({price.moved, at, price.collectives, price.steps});
  std::push_heap(open_.begin(), open_.end(),
                 [&](const Open& a, const Open& b) { return IsMoreExpensive(a, b); });
}

// Orders other than kFewest only scatter axes that end split, and only reduce other axes.
bool RedistributionSearch::MayTake(const RedistributionGraph::Step& step, uint8_t pending) const {
  if (!step.kind) return (step.mask & goal_axes_) != 0;
  switch (*step.kind) {
    case CollectiveKind::kReduceScatter:
      if (order_ == ReduceOrder::kReduceFirst && (pending & ~goal_axes_) != 0) return false;
      return order_ == ReduceOrder::kFewest || (step.mask & ~goal_axes_) == 0;
    case CollectiveKind::kAllReduce:
      return order_ == ReduceOrder::kFewest || (step.mask & goal_axes_) == 0;
    default: return true;
  }
}

void RedistributionSearch::Leave(uint32_t at) {
  std::span<const RedistributionGraph::Step> steps = graph_.StepsFrom(at);
  if (places_.size() < graph_.size()) places_.resize(graph_.size());
  const Price before = places_[at].price();
  HEDDLE_CHECK(steps.size() <= kMostStep, "too many steps from one placement");
  HEDDLE_CHECK(before.steps < UINT8_MAX - 1, "too many steps to one placement");
  uint8_t pending = graph_.pending(at);
  for (size_t i = 0; i < steps.size(); ++i) {
    const RedistributionGraph::Step& step = steps[i];
    Price price = before;
    price.collectives += step.kind ? 1 : 0;
    price.moved += step.moved;
    price.steps += 1;
    if (price < places_[step.to].price() && MayTake(step, pending)) Reach(step.to, price, at, i);
  }
}

// Continues until the cheapest path to the goal is known. Returns kNone if there is none.
uint32_t RedistributionSearch::Settle(uint32_t goal) {
  if (goal < places_.size() && places_[goal].settled != 0) return goal;
  if (unleft_ != kNone) Leave(std::exchange(unleft_, kNone));
  while (!open_.empty() && reached_count_ < kMostPlacements) {
    std::pop_heap(open_.begin(), open_.end(),
                  [&](const Open& a, const Open& b) { return IsMoreExpensive(a, b); });
    Open next = open_.back();
    open_.pop_back();
    if (places_[next.at].price() != next.price()) continue;
    places_[next.at].settled = 1;
    // All remaining entries are outdated, so free their memory.
    if (++settled_count_ == reached_count_) std::vector<Open>().swap(open_);
    if (next.at == goal) return unleft_ = goal;
    Leave(next.at);
  }
  return kNone;
}

bool RedistributionSearch::Run(PackedPlacement to, std::vector<PackedPlacement>& stops) {
  uint32_t at = Settle(graph_.NumberOf(to));
  if (at == kNone) return false;
  auto first = static_cast<ptrdiff_t>(stops.size());
  RedistributionGraph::Step next{.kind = CollectiveKind::kAllReduce};
  for (; places_[at].before != kNone; at = places_[at].before) {
    RedistributionGraph::Step step = StepTo(at);
    bool joins = !next.kind && IsSliceOf(step, next.end);
    if (!joins) stops.push_back(graph_.packed(at));
    next = step;
  }
  std::reverse(stops.begin() + first, stops.end());
  return true;
}

std::optional<std::vector<RedistributionGraph::Step>> RedistributionSearch::Run(
    PackedPlacement to) {
  uint32_t at = Settle(graph_.NumberOf(to));
  if (at == kNone) return std::nullopt;
  std::vector<RedistributionGraph::Step> out;
  for (; places_[at].before != kNone; at = places_[at].before) {
    RedistributionGraph::Step step = StepTo(at);
    bool joins = !out.empty() && !step.kind && IsSliceOf(out.back(), step.end);
    if (joins)
      out.back().over = Joined(step.over, out.back().over);
    else
      out.push_back(step);
  }
  std::ranges::reverse(out);
  return out;
}

}  // namespace heddle::compile
