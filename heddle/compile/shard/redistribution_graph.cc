#include "heddle/compile/shard/redistribution_graph.h"

#include <algorithm>

#include "heddle/core/base/division.h"

namespace heddle::compile {
namespace {

ReduceOp OpOf(std::span<const Partial> partials, AxisId axis) {
  for (const Partial& partial : partials) {
    if (partial.axis == axis) return partial.op;
  }
  return ReduceOp::kSum;
}

// Visits all ordered choices of axes with the same pending reduction.
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

PackedPlacement Without(PackedPlacement packed, const Axes& axes) {
  for (AxisId axis : axes) packed &= ~AtAxis(axis, 0xff);
  return packed;
}

// Splits a dimension over additional axes inside its current ones.
PackedPlacement SplitOver(PackedPlacement packed, size_t end, const Axes& inside_of,
                          const Axes& axes) {
  for (size_t i = 0; i < axes.size(); ++i)
    packed |= AtAxis(axes[i], AxisByte::Split(end, inside_of.size() + i));
  return packed;
}

}  // namespace

Axes Suffix(const Axes& axes, size_t from) {
  Axes out;
  for (size_t i = from; i < axes.size(); ++i) out.Add(axes[i]);
  return out;
}

RedistributionGraph::RedistributionGraph(std::span<const int64_t> ends, int64_t rest, uint8_t axes,
                                         const Mesh& mesh)
    : ends_(ends.begin(), ends.end()), rest_(rest), axes_(axes), mesh_(mesh) {}

// --- Placements

// For each end, the number of its axes and the axes; then the pending reductions. Digits have three
// bits, the first ones are the most significant.
RedistributionGraph::Order RedistributionGraph::OrderOf(PackedPlacement packed) const {
  static_assert(3 * (kMostEnds + Mesh::kMaxAxes) < 64 && kReduceOpCount < 8);
  Order order{0, 0};
  size_t shift = 64;
  PackedDimAxes dims(packed);
  for (size_t e = 0; e < ends_.size(); ++e) {
    order.first |= uint64_t{dims.counts[e]} << (shift -= 3);
    for (size_t i = 0; i < dims.counts[e]; ++i)
      order.first |= uint64_t{dims.axes[e][i]} << (shift -= 3);
  }
  shift = 64;
  for (AxisId axis = 0; axis < Mesh::kMaxAxes; ++axis) {
    AxisByte use = ByteOf(packed, axis);
    if (!use.pending()) continue;
    order.second |= (uint64_t{axis} + 1) << (shift -= 3);
    order.second |= static_cast<uint64_t>(use.op()) << (shift -= 3);
  }
  return order;
}

uint32_t RedistributionGraph::NumberOf(PackedPlacement packed) {
  const uint64_t hash = Scramble(packed);
  uint32_t at = numbers_.Find(hash, [&](uint32_t n) { return places_[n].packed == packed; });
  if (at != HashIndex::kNone) return at;
  at = static_cast<uint32_t>(places_.size());
  uint8_t pending = 0;
  for (AxisId axis = 0; axis < Mesh::kMaxAxes; ++axis)
    pending |= static_cast<uint8_t>(ByteOf(packed, axis).pending() ? 1U << axis : 0U);
  places_.push_back({packed, OrderOf(packed), pending});
  numbers_.Insert(hash, at);
  return at;
}

// --- Steps

RedistributionGraph::From RedistributionGraph::FromOf(PackedPlacement packed) const {
  From from{packed};
  PackedDimAxes dims(packed);
  for (size_t e = 0; e < ends_.size(); ++e) {
    for (size_t i = 0; i < dims.counts[e]; ++i) from.splits[e].Add(dims.axes[e][i]);
  }
  for (AxisId axis = 0; axis < Mesh::kMaxAxes; ++axis) {
    AxisByte use = ByteOf(packed, axis);
    if (use.pending()) from.partials.push_back({axis, use.op()});
  }
  from.elements = Elements(packed);
  return from;
}

std::span<const RedistributionGraph::Step> RedistributionGraph::StepsFrom(uint32_t number) {
  if (places_[number].first != kNone)
    return std::span(steps_).subspan(places_[number].first, places_[number].count);
  last_.clear();
  From from = FromOf(places_[number].packed);
  Scatter(from);
  Reduce(from);
  Gather(from);
  Slice(from);
  if (steps_.size() + last_.size() <= kMostSteps) {
    places_[number].first = static_cast<uint32_t>(steps_.size());
    places_[number].count = static_cast<uint32_t>(last_.size());
    steps_.insert(steps_.end(), last_.begin(), last_.end());
  }
  return last_;
}

void RedistributionGraph::Add(PackedPlacement to, Step step) {
  step.to = NumberOf(to);
  step.mask = MaskOf(step.over);
  last_.push_back(step);
}

// The innermost axes of a dimension are gathered, or move to another dimension.
void RedistributionGraph::Gather(const From& from) {
  for (uint8_t d = 0; d < ends_.size(); ++d) {
    const Axes& axes = from.splits[d];
    for (size_t first = 0; first < axes.size(); ++first) {
      Axes over = Suffix(axes, first);
      PackedPlacement next = Without(from.packed, over);
      Add(next, {.kind = CollectiveKind::kAllGather,
                 .end = d,
                 .over = over,
                 .moved = Elements(next) - from.elements});
      int64_t share = Share(from.elements, over);
      for (uint8_t e = 0; e < ends_.size(); ++e) {
        if (e == d) continue;
        Add(SplitOver(next, e, from.splits[e], over), {.kind = CollectiveKind::kAllToAll,
                                                       .end = e,
                                                       .concat_end = d,
                                                       .over = over,
                                                       .moved = share});
      }
    }
  }
}

void RedistributionGraph::Scatter(const From& from) {
  ForEachPartialList(from.partials, [&](const Axes& over, ReduceOp op) {
    for (uint8_t d = 0; d < ends_.size(); ++d) {
      PackedPlacement next = SplitOver(Without(from.packed, over), d, from.splits[d], over);
      Add(next, {.kind = CollectiveKind::kReduceScatter,
                 .op = op,
                 .end = d,
                 .over = over,
                 .moved = from.elements - Elements(next)});
    }
  });
}

void RedistributionGraph::Reduce(const From& from) {
  ForEachPartialList(from.partials, [&](const Axes& over, ReduceOp op) {
    if (!std::is_sorted(over.begin(), over.end())) return;
    Add(Without(from.packed, over), {.kind = CollectiveKind::kAllReduce,
                                     .op = op,
                                     .over = over,
                                     .moved = 2 * Share(from.elements, over)});
  });
}

// Slices over an unused axis, even if the goal does not split it, because sliced tensors take fewer
// moved elements on the reduced.
void RedistributionGraph::Slice(const From& from) {
  for (AxisId axis = 0; axis < mesh_.axes().size(); ++axis) {
    if ((axes_ >> axis & 1) == 0 || !ByteOf(from.packed, axis).replicated()) continue;
    for (uint8_t d = 0; d < ends_.size(); ++d) {
      Add(SplitOver(from.packed, d, from.splits[d], Axes(axis)), {.end = d, .over = Axes(axis)});
    }
  }
}

// Elements of the largest part of any rank.
int64_t RedistributionGraph::Elements(PackedPlacement packed) const {
  std::array<int64_t, kMostEnds> ranks;
  ranks.fill(1);
  for (AxisId axis = 0; axis < mesh_.axes().size(); ++axis) {
    AxisByte use = ByteOf(packed, axis);
    if (use.splits()) ranks[use.dim()] *= mesh_[axis].size;
  }
  int64_t elements = rest_;
  for (size_t e = 0; e < ends_.size(); ++e) {
    int64_t part = ranks[e] == 1 ? ends_[e] : CeilDiv(ends_[e], ranks[e]);
    if (__builtin_mul_overflow(elements, part, &elements)) return INT64_MAX / 8;
  }
  return std::min(elements, INT64_MAX / 8);
}

int64_t RedistributionGraph::Share(int64_t elements, const Axes& over) const {
  return elements - CeilDiv(elements, mesh_.Size(over));
}

}  // namespace heddle::compile
