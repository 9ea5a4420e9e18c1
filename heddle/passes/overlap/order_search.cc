#include "heddle/passes/overlap/order_search.h"

#include <algorithm>

#include "heddle/sim/timeline/timeline.h"

namespace heddle {

OrderSearch::OrderSearch(const Graph& graph, const SimGraph& sim, const SimOptions& sim_options,
                         const OverlapOptions& options)
    : sim_(sim),
      options_(options),
      shape_(graph, sim, options.reorder_compute && !options.strict),
      scheduler_(shape_, sim),
      replay_(sim, sim_options),
      peak_at_(MakeTimeline(sim, sim_options).peak_position) {}

Outcome OrderSearch::Judge(const std::vector<NodeId>& order) {
  Outcome outcome = replay_.Run(order);
  best_.least = std::min(best_.least, outcome.peak);
  if (outcome.peak <= cap_ && (best_.order.empty() || outcome.makespan < best_.outcome.makespan)) {
    best_.order = order;
    best_.outcome = outcome;
  }
  return outcome;
}

void OrderSearch::List(ListOptions options) {
  constexpr int kTries = 5;
  Bytes target = options.cap;
  for (int i = 0; i < kTries; ++i) {
    Outcome oo = Judge(scheduler_.Run(options, &base_).order);
    Bytes peak = oo.peak;
    if (getenv("OVL_LIST")) fprintf(stderr, "  list lead %.1f kept %u defer %d %.1fms cap %ld -> %.2f peak %ld (target %ld)\n", options.lead.value / 1e6, options.kept, options.defer, options.most_deferred.value / 1e6, options.cap.value >> 20, oo.makespan.value / 1e6, peak.value >> 20, target.value >> 20);
    if (peak <= target) break;
    options.cap -= peak - target;
  }
}

// For a few nodes, levels that do not depend on the cap: what was tried for a cap is tried for a larger one, which so never makes a
// step longer. For many that would take too long.
std::vector<Bytes> OrderSearch::Levels(Bytes cap) const {
  if (shape_.node_count() > kFewNodes) return {cap};
  constexpr int64_t kSteps = 16;
  std::vector<Bytes> levels;
  for (int64_t i = 1; i <= 2 * kSteps; ++i) {
    Bytes level = given_.peak * i;
    level.value /= kSteps;
    if (level <= cap) levels.push_back(level);
  }
  return levels;
}

void OrderSearch::Defer(ListOptions options) {
  options.defer = true;
  for (int64_t share : {1, 8, 64}) {
    options.most_deferred = {sim_.compute().value / share};
    List(options);
  }
}

// The peak of what starts nothing ahead.
Bytes OrderSearch::TryUnder(Bytes level, uint32_t kept) {
  bool strict = options_.strict;
  ListOptions plain{.cap = level, .ahead = false, .kept = kept, .strict = strict};
  base_ = scheduler_.Run(plain, nullptr);
  Bytes peak = Judge(base_.order).peak;
  ListOptions ahead = plain;
  ahead.ahead = true;
  for (int64_t share : {0, 4, 16, 64}) {
    if (share > 0) ahead.lead = {sim_.compute().value / share};
    List(ahead);
    if (options_.reorder_compute && !strict) Defer(ahead);
  }
  return peak;
}

FoundOrder OrderSearch::Run(Bytes cap) {
  cap_ = cap;
  best_ = {};
  best_.least = {INT64_MAX};
  given_ = Judge(replay_.order());
  bool strict = options_.strict;
  // With no memory to spare: the least that this can do with.
  Judge(scheduler_.Run({.cap = {}, .ahead = false, .strict = strict}, nullptr).order);
  for (Bytes level : Levels(cap)) {
    if (TryUnder(level, 0) <= level) continue;
    // Where the given order needs most, nothing may come later that lets go of anything. Up to there it stays as it is.
    TryUnder(level, static_cast<uint32_t>(peak_at_) + 1);
  }
  return best_;
}

}  // namespace heddle
