#include "heddle/shard/redistribution_search.h"

#include <algorithm>
#include <numeric>
#include <utility>

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

// The dimensions that are split at either end.
std::vector<size_t> EndsOf(const Placement& from, const Placement& to, size_t rank) {
  std::vector<size_t> ends;
  for (size_t d = 0; d < rank; ++d) {
    if (!from.split(d).empty() || !to.split(d).empty()) ends.push_back(d);
  }
  return ends;
}

Axes SplitAxes(const Placement& placement) {
  Axes all;
  for (const Axes& axes : placement.splits) all = Joined(all, axes);
  return all;
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

// Any order would do, as long as it is the same everywhere: equally cheap ways are told apart by it.
bool RedistributionSearch::Spot::operator<(const Spot& other) const {
  if (splits != other.splits) return splits < other.splits;
  auto key = [](const Partial& partial) { return std::pair(partial.axis, partial.op); };
  return std::ranges::lexicographical_compare(partials(), other.partials(), {}, key, key);
}

PlacementWord RedistributionSearch::WordOf(const Spot& spot) {
  PlacementWord word = 0;
  for (size_t e = 0; e < kMostEnds; ++e) {
    const Axes& axes = spot.splits[e];
    for (size_t i = 0; i < axes.size(); ++i) word |= AtAxis(axes[i], AxisByte::Split(e, i));
  }
  for (const Partial& partial : spot.partials())
    word |= AtAxis(partial.axis, AxisByte::Pending(partial.op));
  return word;
}

RedistributionSearch::Spot RedistributionSearch::SpotOf(PlacementWord word) {
  Spot spot;
  DimAxesOfWord dims(word);
  for (size_t e = 0; e < kMostEnds; ++e) {
    for (size_t i = 0; i < dims.counts[e]; ++i) spot.splits[e].Add(dims.axes[e][i]);
  }
  for (AxisId axis = 0; axis < Mesh::kMaxAxes; ++axis) {
    AxisByte use = ByteOf(word, axis);
    if (use.pending()) spot.pending[spot.pending_count++] = {axis, use.op()};
  }
  return spot;
}

bool RedistributionSearch::Open::operator<(const Open& other) const {
  if (price != other.price) return other.price < price;
  return other.spot != spot && SpotOf(other.spot) < SpotOf(spot);
}

RedistributionSearch::Spot RedistributionSearch::SpotOf(const Placement& placement) const {
  Spot spot;
  for (size_t e = 0; e < ends_.size(); ++e) spot.splits[e] = placement.split(ends_[e]);
  for (const Partial& partial : placement.partials) spot.pending[spot.pending_count++] = partial;
  return spot;
}

Placement RedistributionSearch::PlacementAt(PlacementWord word) const {
  Spot spot = SpotOf(word);
  Placement placement;
  placement.splits.resize(dims_.size());
  for (size_t e = 0; e < ends_.size(); ++e) placement.splits[ends_[e]] = spot.splits[e];
  placement.partials.assign(spot.partials().begin(), spot.partials().end());
  placement.Normalize();
  return placement;
}

// --- The search

RedistributionSearch::RedistributionSearch(PlacementWord from, size_t ends, const Axes& goal_axes,
                                           Dims dims, const Mesh& mesh, ReduceOrder order)
    : dims_(std::move(dims)), mesh_(mesh), order_(order), ends_(ends), goal_axes_(goal_axes) {
  std::iota(ends_.begin(), ends_.end(), size_t{0});
  Reach(from, {}, {}, kNone);
}

RedistributionSearch::RedistributionSearch(const Placement& from, const Placement& to,
                                           const Dims& dims, const Mesh& mesh, ReduceOrder order)
    : dims_(dims),
      mesh_(mesh),
      order_(order),
      ends_(EndsOf(from, to, dims.size())),
      goal_axes_(SplitAxes(to)) {
  Reach(WordOf(SpotOf(from)), {}, {}, kNone);
}

// Goes on until the goal is reached in the cheapest way. kNone if it never is.
uint32_t RedistributionSearch::Settle(PlacementWord goal) {
  auto found = index_.find(goal);
  if (found != index_.end() && reached_[found->second].settled) return found->second;
  if (unleft_ != kNone) Leave(std::exchange(unleft_, kNone));
  while (!open_.empty() && reached_.size() < kMostPlacements) {
    auto [price, spot, at] = open_.top();
    open_.pop();
    if (reached_[at].price != price) continue;
    reached_[at].settled = true;
    if (spot == goal) return unleft_ = at;
    Leave(at);
  }
  return kNone;
}

std::optional<std::vector<RedistributionStep>> RedistributionSearch::Run(const Placement& to) {
  uint32_t at = Settle(WordOf(SpotOf(to)));
  if (at == kNone) return std::nullopt;
  return PathTo(at);
}

bool RedistributionSearch::Run(PlacementWord to, std::vector<PlacementWord>& stops) {
  uint32_t at = Settle(to);
  if (at == kNone) return false;
  size_t first = stops.size();
  const Reached* next = nullptr;
  for (; reached_[at].before != kNone; at = reached_[at].before) {
    const Reached& reached = reached_[at];
    bool joins = next != nullptr && next->move.kind == StepKind::kSlice &&
                 reached.move.kind == StepKind::kSlice && next->move.end == reached.move.end;
    if (!joins) stops.push_back(reached.spot);
    next = &reached;
  }
  std::reverse(stops.begin() + static_cast<ptrdiff_t>(first), stops.end());
  return true;
}

void RedistributionSearch::Leave(uint32_t at) {
  Spot spot = SpotOf(reached_[at].spot);
  Scatter(at, spot);
  Reduce(at, spot);
  Gather(at, spot);
  Slice(at, spot);
}

std::optional<RedistributionStep> RedistributionSearch::RunOnce(const Placement& to) {
  const uint32_t start = 0;
  Spot spot = SpotOf(reached_[start].spot);
  Scatter(start, spot);
  Reduce(start, spot);
  Gather(start, spot);
  auto found = index_.find(WordOf(SpotOf(to)));
  if (found != index_.end() && found->second != start) return StepTo(reached_[found->second]);
  // Slices go by axes, of which one step may have several.
  bool replicated = reached_[start].spot == 0;
  if (!replicated || ends_.size() != 1 || !to.partials.empty()) return std::nullopt;
  return RedistributionStep{
      .kind = StepKind::kSlice, .over = to.splits[ends_[0]], .dim = ends_[0], .to = to};
}

RedistributionStep RedistributionSearch::StepTo(const Reached& reached) const {
  const Move& move = reached.move;
  RedistributionStep step{.kind = move.kind, .over = move.over, .op = move.op};
  if (move.kind != StepKind::kAllReduce) step.dim = ends_[move.end];
  if (move.kind == StepKind::kAllToAll) step.concat_dim = ends_[move.concat_end];
  step.to = PlacementAt(reached.spot);
  return step;
}

std::vector<RedistributionStep> RedistributionSearch::PathTo(uint32_t at) const {
  std::vector<RedistributionStep> steps;
  for (; reached_[at].before != kNone; at = reached_[at].before)
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

void RedistributionSearch::Reach(PlacementWord spot, RedistributionPrice price, const Move& move,
                                 uint32_t before) {
  auto [found, added] = index_.try_emplace(spot, static_cast<uint32_t>(reached_.size()));
  if (added) {
    reached_.push_back({spot, price, move, before});
  } else {
    Reached& reached = reached_[found->second];
    if (reached.price <= price) return;
    reached = {spot, price, move, before};
  }
  open_.push({price, spot, found->second});
}

void RedistributionSearch::Take(const Spot& spot, int64_t moved, const Move& move,
                                uint32_t before) {
  RedistributionPrice price = reached_[before].price;
  price.collectives += move.kind == StepKind::kSlice ? 0 : 1;
  price.moved += moved;
  price.steps += 1;
  Reach(WordOf(spot), price, move, before);
}

// --- Steps

// The innermost axes of a dimension go away, or to another dimension.
void RedistributionSearch::Gather(uint32_t at, const Spot& spot) {
  int64_t elements = Elements(spot);
  for (uint8_t d = 0; d < ends_.size(); ++d) {
    Axes axes = spot.splits[d];
    for (size_t from = 0; from < axes.size(); ++from) {
      Axes over = Suffix(axes, from);
      Spot next = spot;
      next.splits[d] = Prefix(axes, from);
      Take(next, Elements(next) - elements, {.kind = StepKind::kAllGather, .end = d, .over = over},
           at);
      for (uint8_t e = 0; e < ends_.size(); ++e) {
        if (e == d) continue;
        Spot moved = next;
        moved.splits[e] = Joined(moved.splits[e], over);
        Take(moved, Share(elements, over),
             {.kind = StepKind::kAllToAll, .end = e, .concat_end = d, .over = over}, at);
      }
    }
  }
}

void RedistributionSearch::Scatter(uint32_t at, const Spot& spot) {
  if (order_ == ReduceOrder::kReduceFirst && MustReduce(spot)) return;
  ForEachPartialList(spot.partials(), [&](const Axes& over, ReduceOp op) {
    if (order_ != ReduceOrder::kFewest &&
        !std::ranges::all_of(over, [&](AxisId a) { return EndsSplit(a); }))
      return;
    for (uint8_t d = 0; d < ends_.size(); ++d) {
      Spot next = Without(spot, over);
      next.splits[d] = Joined(next.splits[d], over);
      Take(next, Elements(spot) - Elements(next),
           {.kind = StepKind::kReduceScatter, .op = op, .end = d, .over = over}, at);
    }
  });
}

void RedistributionSearch::Reduce(uint32_t at, const Spot& spot) {
  ForEachPartialList(spot.partials(), [&](const Axes& over, ReduceOp op) {
    if (!std::is_sorted(over.begin(), over.end())) return;
    if (order_ != ReduceOrder::kFewest &&
        std::ranges::any_of(over, [&](AxisId a) { return EndsSplit(a); }))
      return;
    Take(Without(spot, over), 2 * Share(Elements(spot), over),
         {.kind = StepKind::kAllReduce, .op = op, .over = over}, at);
  });
}

// An axis that nothing uses and the goal splits. Not only where the goal has it: on the way, what is cut already is less to
// move.
void RedistributionSearch::Slice(uint32_t at, const Spot& spot) {
  Axes used;
  for (const Axes& axes : spot.splits) used = Joined(used, axes);
  for (const Partial& partial : spot.partials()) used.Add(partial.axis);
  for (AxisId axis : goal_axes_) {
    if (used.contains(axis)) continue;
    for (uint8_t d = 0; d < ends_.size(); ++d) {
      Spot next = spot;
      next.splits[d].Add(axis);
      Take(next, 0, {.kind = StepKind::kSlice, .end = d, .over = Axes(axis)}, at);
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
