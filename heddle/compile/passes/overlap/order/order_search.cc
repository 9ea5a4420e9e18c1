#include "heddle/compile/passes/overlap/order/order_search.h"

#include <algorithm>

#include "heddle/price/sim/timeline/timeline.h"

namespace heddle::compile {

OrderSearch::OrderSearch(const Graph& graph, const price::SimGraph& sim,
                         const price::SimOptions& sim_options, const OverlapOptions& options,
                         Freedom freedom)
    : sim_(sim),
      options_(options),
      freedom_(freedom),
      constraints_(graph, sim, freedom),
      scheduler_(constraints_, sim),
      sim_options_(sim_options),
      replay_(sim, sim_options) {}

price::Outcome OrderSearch::Judge(const std::vector<NodeId>& order) {
  price::Outcome outcome = replay_.Run(order);
  best_.least = std::min(best_.least, outcome.peak);
  // Among equal times, the smaller peak.
  auto key = [](const price::Outcome& o) { return std::pair(o.makespan, o.peak); };
  if (outcome.peak <= cap_ && (best_.order.empty() || key(outcome) < key(best_.outcome))) {
    best_.order = order;
    best_.outcome = outcome;
  }
  return outcome;
}

ListedOrder OrderSearch::List(ListOptions options) {
  constexpr int kTries = 5;
  const Bytes target = std::min(options.cap, cap_);
  ListedOrder first;
  for (int i = 0; i < kTries; ++i) {
    ListedOrder listed = scheduler_.Run(options, &base_);
    Bytes peak = Judge(listed.order).peak;
    if (i == 0) first = std::move(listed);
    if (peak <= target) break;
    options.cap -= peak - target;
  }
  return first;
}

// For small graphs, levels that do not depend on the cap: every cap tries all levels of smaller
// caps, so a larger cap never makes a step longer. For large graphs that takes too long.
std::vector<Bytes> OrderSearch::Levels(Bytes cap, Bytes spare) const {
  if (!IsSmall()) return {cap + spare};
  constexpr int64_t kSteps = 16;
  std::vector<Bytes> levels;
  for (int64_t i = 1; i <= 2 * kSteps; ++i) {
    Bytes level = given_.peak * i;
    level.value /= kSteps;
    if (level <= std::max(cap, given_.peak)) levels.push_back(level);
  }
  return levels;
}

Nanos OrderSearch::ListMoving(ListOptions options, bool in_order) {
  if (freedom_ == Freedom::kNone) return List(options).longest_lead;
  ListOptions moving = options;
  moving.move_compute = true;
  const bool all = freedom_ == Freedom::kAll;
  if (all) moving.most_deferred = sim_.compute();
  ListedOrder first = List(moving);
  Nanos longest = first.longest_lead;
  // If no compute moved, the order is the same.
  if (in_order && first.moved) longest = std::max(longest, List(options).longest_lead);
  if (!thorough_ || !first.moved) return longest;
  std::vector<Nanos> bounds{sim_.compute()};
  if (all) bounds = {{sim_.compute().value / 8}, {sim_.compute().value / 64}};
  for (Nanos bound : bounds) {
    moving.most_deferred = bound;
    if (!all || bound < first.most_deferred) List(moving);
  }
  return longest;
}

// The peak of the order without early starts.
Bytes OrderSearch::TryUnder(Bytes level, uint32_t kept) {
  bool strict = options_.strict;
  ListOptions plain{.cap = level, .ahead = false, .kept = kept, .strict = strict};
  base_ = scheduler_.Run(plain, nullptr);
  Bytes peak = Judge(base_.order).peak;
  ListOptions ahead = plain;
  ahead.ahead = true;
  const Nanos longest = ListMoving(ahead, true);
  std::vector<int64_t> shares = {64};
  if (thorough_) shares = {4, 16, 64, 256};
  for (int64_t share : shares) {
    ahead.lead = {sim_.compute().value / share};
    if (ahead.lead < longest) ListMoving(ahead, thorough_);
  }
  return peak;
}

FoundOrder OrderSearch::Run(Bytes cap, bool thorough, Bytes spare) {
  cap_ = cap;
  thorough_ = thorough;
  best_ = {};
  best_.least = {INT64_MAX};
  given_ = Judge(replay_.order());
  bool strict = options_.strict;
  // Without spare memory, try the minimum that this order needs.
  if (given_.peak > cap || IsSmall())
    Judge(scheduler_.Run({.cap = {}, .ahead = false, .strict = strict}, nullptr).order);
  for (Bytes level : Levels(cap, spare)) {
    if (TryUnder(level, 0) <= level) continue;
    // Up to the peak of the given order, no node that frees memory may move later. That part stays
    // unchanged.
    size_t peak_at = price::MakeTimeline(sim_, sim_options_).peak_position;
    TryUnder(level, static_cast<uint32_t>(peak_at) + 1);
  }
  return best_;
}

}  // namespace heddle::compile
