#include "heddle/shard/redistribution_search.h"

#include <algorithm>
#include <numeric>
#include <utility>

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
  Begin(from);
}

RedistributionSearch::RedistributionSearch(const Placement& from, const Placement& to,
                                           const Dims& dims, const Mesh& mesh, ReduceOrder order)
    : dims_(dims),
      mesh_(mesh),
      order_(order),
      ends_(EndsOf(from, to, dims.size())),
      goal_axes_(SplitAxes(to)) {
  Begin(WordOf(SpotOf(from)));
}

void RedistributionSearch::Begin(PlacementWord from) {
  size_t e = 0;
  for (size_t d = 0; d < dims_.size(); ++d) {
    // Prices only: an unknown size counts once for all ways.
    int64_t size = IsSymbol(dims_[d]) ? 1 : dims_[d];
    if (e < ends_.size() && ends_[e] == d) {
      end_sizes_[e++] = size;
    } else if (__builtin_mul_overflow(rest_, size, &rest_)) {
      rest_ = INT64_MAX / 8;
    }
  }
  table_.assign(64, kNone);
  Reach(from, {}, {}, kNone);
}

// Goes on until the goal is reached in the cheapest way. kNone if it never is.
uint32_t RedistributionSearch::Settle(PlacementWord goal) {
  uint32_t found = Slot(goal);
  if (found != kNone && reached_[found].settled) return found;
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

std::optional<RedistributionStep> RedistributionSearch::RunOnce(const Placement& to) {
  const uint32_t start = 0;
  PlacementWord word = reached_[start].spot;
  From from{start, word, SpotOf(word), Elements(word)};
  Scatter(from);
  Reduce(from);
  Gather(from);
  uint32_t found = Slot(WordOf(SpotOf(to)));
  if (found != kNone && found != start) return StepTo(reached_[found]);
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

// Where a placement is, or would be, in the table.
uint32_t& RedistributionSearch::Slot(PlacementWord spot) {
  for (size_t at = Scramble(spot);; ++at) {
    uint32_t& slot = table_[at & (table_.size() - 1)];
    if (slot == kNone || reached_[slot].spot == spot) return slot;
  }
}

void RedistributionSearch::Reach(PlacementWord spot, RedistributionPrice price, const Move& move,
                                 uint32_t before) {
  uint32_t at = Slot(spot);
  if (at != kNone) {
    if (reached_[at].price <= price) return;
    reached_[at] = {spot, price, move, before};
  } else {
    at = static_cast<uint32_t>(reached_.size());
    if (2 * at >= table_.size()) {
      table_.assign(2 * table_.size(), kNone);
      for (uint32_t i = 0; i < at; ++i) Slot(reached_[i].spot) = i;
    }
    Slot(spot) = at;
    reached_.push_back({spot, price, move, before});
  }
  open_.push({price, spot, at});
}

void RedistributionSearch::Take(PlacementWord spot, int64_t moved, const Move& move,
                                uint32_t before) {
  RedistributionPrice price = reached_[before].price;
  price.collectives += move.kind == StepKind::kSlice ? 0 : 1;
  price.moved += moved;
  price.steps += 1;
  Reach(spot, price, move, before);
}

// --- Steps

namespace {

PlacementWord Without(PlacementWord word, const Axes& axes) {
  for (AxisId axis : axes) word &= ~AtAxis(axis, 0xff);
  return word;
}

// A dimension is split over these, too, inside of what splits it already.
PlacementWord SplitOver(PlacementWord word, size_t end, const Axes& inside_of, const Axes& axes) {
  for (size_t i = 0; i < axes.size(); ++i)
    word |= AtAxis(axes[i], AxisByte::Split(end, inside_of.size() + i));
  return word;
}

}  // namespace

void RedistributionSearch::Leave(uint32_t at) {
  PlacementWord word = reached_[at].spot;
  From from{at, word, SpotOf(word), Elements(word)};
  Scatter(from);
  Reduce(from);
  Gather(from);
  Slice(from);
}

// The innermost axes of a dimension go away, or to another dimension.
void RedistributionSearch::Gather(const From& from) {
  for (uint8_t d = 0; d < ends_.size(); ++d) {
    const Axes& axes = from.spot.splits[d];
    for (size_t first = 0; first < axes.size(); ++first) {
      Axes over = Suffix(axes, first);
      PlacementWord next = Without(from.word, over);
      Take(next, Elements(next) - from.elements,
           {.kind = StepKind::kAllGather, .end = d, .over = over}, from.at);
      int64_t share = Share(from.elements, over);
      for (uint8_t e = 0; e < ends_.size(); ++e) {
        if (e == d) continue;
        Take(SplitOver(next, e, from.spot.splits[e], over), share,
             {.kind = StepKind::kAllToAll, .end = e, .concat_end = d, .over = over}, from.at);
      }
    }
  }
}

void RedistributionSearch::Scatter(const From& from) {
  if (order_ == ReduceOrder::kReduceFirst && MustReduce(from.spot)) return;
  ForEachPartialList(from.spot.partials(), [&](const Axes& over, ReduceOp op) {
    if (order_ != ReduceOrder::kFewest &&
        !std::ranges::all_of(over, [&](AxisId a) { return EndsSplit(a); }))
      return;
    for (uint8_t d = 0; d < ends_.size(); ++d) {
      PlacementWord next = SplitOver(Without(from.word, over), d, from.spot.splits[d], over);
      Take(next, from.elements - Elements(next),
           {.kind = StepKind::kReduceScatter, .op = op, .end = d, .over = over}, from.at);
    }
  });
}

void RedistributionSearch::Reduce(const From& from) {
  ForEachPartialList(from.spot.partials(), [&](const Axes& over, ReduceOp op) {
    if (!std::is_sorted(over.begin(), over.end())) return;
    if (order_ != ReduceOrder::kFewest &&
        std::ranges::any_of(over, [&](AxisId a) { return EndsSplit(a); }))
      return;
    Take(Without(from.word, over), 2 * Share(from.elements, over),
         {.kind = StepKind::kAllReduce, .op = op, .over = over}, from.at);
  });
}

// An axis that nothing uses and the goal splits. Not only where the goal has it: on the way, what is cut already is less to
// move.
void RedistributionSearch::Slice(const From& from) {
  for (AxisId axis : goal_axes_) {
    if (!ByteOf(from.word, axis).replicated()) continue;
    for (uint8_t d = 0; d < ends_.size(); ++d) {
      Take(SplitOver(from.word, d, from.spot.splits[d], Axes(axis)), 0,
           {.kind = StepKind::kSlice, .end = d, .over = Axes(axis)}, from.at);
    }
  }
}

// Whether some partial axis ends replicated.
bool RedistributionSearch::MustReduce(const Spot& spot) const {
  return std::ranges::any_of(spot.partials(),
                             [&](const Partial& partial) { return !EndsSplit(partial.axis); });
}

// Of one rank's part, the largest.
int64_t RedistributionSearch::Elements(PlacementWord word) const {
  std::array<int64_t, kMostEnds> ranks;
  ranks.fill(1);
  for (AxisId axis = 0; axis < mesh_.axes().size(); ++axis) {
    AxisByte use = ByteOf(word, axis);
    if (use.splits()) ranks[use.dim()] *= mesh_[axis].size;
  }
  int64_t elements = rest_;
  for (size_t e = 0; e < ends_.size(); ++e) {
    int64_t part = ranks[e] == 1 ? end_sizes_[e] : CeilDiv(end_sizes_[e], ranks[e]);
    if (__builtin_mul_overflow(elements, part, &elements)) return INT64_MAX / 8;
  }
  return std::min(elements, INT64_MAX / 8);
}

int64_t RedistributionSearch::Share(int64_t elements, const Axes& over) const {
  return elements - CeilDiv(elements, mesh_.Size(over));
}

}  // namespace heddle
