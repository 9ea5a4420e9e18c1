#include "heddle/shard/redistribution_search.h"

#include <algorithm>

#include "heddle/base/hash.h"
#include "heddle/shard/axis_state.h"

namespace heddle {
namespace {

ReduceOp OpOf(std::span<const Partial> partials, AxisId axis) {
  for (const Partial& partial : partials) {
    if (partial.axis == axis) return partial.op;
  }
  return ReduceOp::kSum;
}

// All ordered choices of axes that are partial in the same way.
template <typename Visit>
void ForEachPartialList(std::span<const Partial> partials, const Visit& visit) {
  if (partials.empty()) return;
  std::vector<Axes> lists{Axes()};
  for (size_t at = 0; at < lists.size(); ++at) {
    for (const Partial& partial : partials) {
      Axes list = lists[at];
      bool same_op = list.empty() || OpOf(partials, list[0]) == partial.op;
      if (same_op && list.Add(partial.axis)) lists.push_back(list);
    }
  }
  for (size_t at = 1; at < lists.size(); ++at) visit(lists[at], OpOf(partials, lists[at][0]));
}

}  // namespace

Axes Prefix(const Axes& axes, size_t n) {
  Axes out;
  for (size_t i = 0; i < n; ++i) out.Add(axes[i]);
  return out;
}

Axes Suffix(const Axes& axes, size_t from) {
  Axes out;
  for (size_t i = from; i < axes.size(); ++i) out.Add(axes[i]);
  return out;
}

// --- Placements

bool RedistributionSearch::Spot::operator==(const Spot& other) const {
  return splits == other.splits && std::ranges::equal(partials(), other.partials());
}

// Any order would do, as long as it is the same everywhere: equally cheap ways are told apart by it.
bool RedistributionSearch::Spot::operator<(const Spot& other) const {
  if (splits != other.splits) return splits < other.splits;
  auto key = [](const Partial& partial) { return std::pair(partial.axis, partial.op); };
  return std::ranges::lexicographical_compare(partials(), other.partials(), {}, key, key);
}

size_t RedistributionSearch::SpotHash::operator()(const Spot& spot) const {
  uint64_t hash = spot.pending_count;
  for (const Axes& axes : spot.splits) hash = MixHash(hash, axes.bits());
  for (const Partial& partial : spot.partials()) hash = MixHash(hash, partial.axis);
  return hash;
}

bool RedistributionSearch::Dearer::operator()(const Open& a, const Open& b) const {
  if (a.first != b.first) return b.first < a.first;
  return search.reached_[b.second].spot < search.reached_[a.second].spot;
}

RedistributionSearch::Spot RedistributionSearch::SpotOf(const Placement& placement) const {
  Spot spot;
  for (size_t e = 0; e < ends_.size(); ++e) spot.splits[e] = placement.split(ends_[e]);
  for (const Partial& partial : placement.partials) spot.pending[spot.pending_count++] = partial;
  return spot;
}

Placement RedistributionSearch::PlacementOf(const Spot& spot) const {
  Placement placement;
  placement.splits.resize(dims_.size());
  for (size_t e = 0; e < ends_.size(); ++e) placement.splits[ends_[e]] = spot.splits[e];
  placement.partials.assign(spot.partials().begin(), spot.partials().end());
  placement.Normalize();
  return placement;
}

// --- The search

RedistributionSearch::RedistributionSearch(const Placement& from, const Placement& to,
                                           const Dims& dims, const Mesh& mesh, ReduceOrder order)
    : to_(to), dims_(dims), mesh_(mesh), order_(order), open_(Dearer{*this}) {
  for (size_t d = 0; d < dims.size(); ++d) {
    if (!from.split(d).empty() || !to.split(d).empty()) ends_.push_back(d);
  }
  goal_ = SpotOf(to);
  Reach(SpotOf(from), {}, {}, kStart);
}

std::optional<std::vector<RedistributionStep>> RedistributionSearch::Run() {
  while (!open_.empty() && reached_.size() < kMostPlacements) {
    auto [price, at] = open_.top();
    open_.pop();
    if (reached_[at].price != price) continue;
    if (reached_[at].spot == goal_) return PathTo(at);
    Scatter(at);
    Reduce(at);
    Gather(at);
    Slice(at);
  }
  return std::nullopt;
}

std::optional<RedistributionStep> RedistributionSearch::RunOnce() {
  const uint32_t start = 0;
  Scatter(start);
  Reduce(start);
  Gather(start);
  auto found = index_.find(goal_);
  if (found != index_.end() && found->second != start) return StepTo(reached_[found->second]);
  // Slices go by axes, of which one step may have several.
  bool replicated = PlacementOf(reached_[start].spot).replicated();
  if (!replicated || ends_.size() != 1 || !to_.partials.empty()) return std::nullopt;
  return RedistributionStep{
      .kind = StepKind::kSlice, .over = to_.splits[ends_[0]], .dim = ends_[0], .to = to_};
}

RedistributionStep RedistributionSearch::StepTo(const Reached& reached) const {
  const Move& move = reached.move;
  RedistributionStep step{.kind = move.kind, .over = move.over, .op = move.op};
  if (move.kind != StepKind::kAllReduce) step.dim = ends_[move.end];
  if (move.kind == StepKind::kAllToAll) step.concat_dim = ends_[move.concat_end];
  step.to = PlacementOf(reached.spot);
  return step;
}

std::vector<RedistributionStep> RedistributionSearch::PathTo(uint32_t at) const {
  std::vector<RedistributionStep> steps;
  for (; reached_[at].before != kStart; at = reached_[at].before)
    steps.push_back(StepTo(reached_[at]));
  std::reverse(steps.begin(), steps.end());
  // Slices of one dimension, one axis after the other, are one slice.
  std::vector<RedistributionStep> out;
  for (RedistributionStep& step : steps) {
    bool joins = !out.empty() && step.kind == StepKind::kSlice &&
                 out.back().kind == StepKind::kSlice && out.back().dim == step.dim;
    if (joins) step.over = Joined(out.back().over, step.over);
    if (joins) out.pop_back();
    out.push_back(std::move(step));
  }
  return out;
}

void RedistributionSearch::Reach(const Spot& spot, RedistributionPrice price, const Move& move,
                                 uint32_t before) {
  auto [found, added] = index_.try_emplace(spot, static_cast<uint32_t>(reached_.size()));
  if (added) {
    reached_.push_back({spot, price, move, before});
  } else {
    Reached& reached = reached_[found->second];
    if (reached.price <= price) return;
    reached = {spot, price, move, before};
  }
  open_.emplace(price, found->second);
}

void RedistributionSearch::Take(const Spot& spot, int64_t moved, const Move& move,
                                uint32_t before) {
  RedistributionPrice price = reached_[before].price;
  price.collectives += move.kind == StepKind::kSlice ? 0 : 1;
  price.moved += moved;
  price.steps += 1;
  Reach(spot, price, move, before);
}

// --- Steps

// The innermost axes of a dimension go away, or to another dimension.
void RedistributionSearch::Gather(uint32_t at) {
  const Spot spot = reached_[at].spot;
  int64_t elements = Elements(spot);
  for (size_t d = 0; d < ends_.size(); ++d) {
    Axes axes = spot.splits[d];
    for (size_t from = 0; from < axes.size(); ++from) {
      Axes over = Suffix(axes, from);
      Spot next = spot;
      next.splits[d] = Prefix(axes, from);
      Take(next, Elements(next) - elements, {.kind = StepKind::kAllGather, .over = over, .end = d},
           at);
      for (size_t e = 0; e < ends_.size(); ++e) {
        if (e == d) continue;
        Spot moved = next;
        moved.splits[e] = Joined(moved.splits[e], over);
        Take(moved, Share(elements, over),
             {.kind = StepKind::kAllToAll, .over = over, .end = e, .concat_end = d}, at);
      }
    }
  }
}

void RedistributionSearch::Scatter(uint32_t at) {
  const Spot spot = reached_[at].spot;
  if (order_ == ReduceOrder::kReduceFirst && MustReduce(spot)) return;
  ForEachPartialList(spot.partials(), [&](const Axes& over, ReduceOp op) {
    if (order_ != ReduceOrder::kFewest &&
        !std::ranges::all_of(over, [&](AxisId a) { return EndsSplit(a); }))
      return;
    for (size_t d = 0; d < ends_.size(); ++d) {
      Spot next = Without(spot, over);
      next.splits[d] = Joined(next.splits[d], over);
      Take(next, Elements(spot) - Elements(next),
           {.kind = StepKind::kReduceScatter, .over = over, .end = d, .op = op}, at);
    }
  });
}

void RedistributionSearch::Reduce(uint32_t at) {
  const Spot spot = reached_[at].spot;
  ForEachPartialList(spot.partials(), [&](const Axes& over, ReduceOp op) {
    if (!std::is_sorted(over.begin(), over.end())) return;
    if (order_ != ReduceOrder::kFewest &&
        std::ranges::any_of(over, [&](AxisId a) { return EndsSplit(a); }))
      return;
    Take(Without(spot, over), 2 * Share(Elements(spot), over),
         {.kind = StepKind::kAllReduce, .over = over, .op = op}, at);
  });
}

// An axis that nothing uses and the goal splits. Not only where the goal has it: on the way, what is cut already is less to
// move.
void RedistributionSearch::Slice(uint32_t at) {
  const Spot spot = reached_[at].spot;
  Axes used;
  for (const Axes& axes : spot.splits) used = Joined(used, axes);
  for (const Partial& partial : spot.partials()) used.Add(partial.axis);
  for (const Axes& axes : goal_.splits) {
    for (AxisId axis : axes) {
      if (used.contains(axis)) continue;
      for (size_t d = 0; d < ends_.size(); ++d) {
        Spot next = spot;
        next.splits[d].Add(axis);
        Take(next, 0, {.kind = StepKind::kSlice, .over = Axes(axis), .end = d}, at);
      }
    }
  }
}

RedistributionSearch::Spot RedistributionSearch::Without(const Spot& spot, const Axes& axes) {
  Spot out = spot;
  out.pending_count = 0;
  for (const Partial& partial : spot.partials()) {
    if (!axes.contains(partial.axis)) out.pending[out.pending_count++] = partial;
  }
  return out;
}

// Whether some partial axis ends replicated.
bool RedistributionSearch::MustReduce(const Spot& spot) const {
  return std::ranges::any_of(spot.partials(),
                             [&](const Partial& partial) { return !EndsSplit(partial.axis); });
}

bool RedistributionSearch::EndsSplit(AxisId axis) const {
  return std::ranges::any_of(goal_.splits, [&](const Axes& axes) { return axes.contains(axis); });
}

int64_t RedistributionSearch::Elements(const Spot& spot) const {
  size_t e = 0;
  return ElementsOfPart(dims_, mesh_, [&](size_t d) {
    return e < ends_.size() && ends_[e] == d ? spot.splits[e++] : Axes();
  });
}

int64_t RedistributionSearch::Share(int64_t elements, const Axes& over) const {
  return elements - CeilDiv(elements, mesh_.Size(over));
}

}  // namespace heddle
