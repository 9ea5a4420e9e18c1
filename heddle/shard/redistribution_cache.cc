#include "heddle/shard/redistribution_cache.h"

#include <algorithm>

#include "heddle/base/division.h"
#include "heddle/base/hash.h"

namespace heddle {

bool RedistributionCache::SizeKey::operator==(const SizeKey& other) const {
  return ends == other.ends && axes == other.axes &&
         std::equal(sizes.begin(), sizes.begin() + ends + 1, other.sizes.begin());
}

size_t RedistributionCache::SizeHash::operator()(const SizeKey& key) const {
  uint64_t hash = uint64_t{key.axes} << 8 | key.ends;
  for (size_t i = 0; i <= key.ends; ++i) hash = MixHash(hash, static_cast<uint64_t>(key.sizes[i]));
  return hash;
}

// Two placements without what they have in common. Dimensions that are split at either end have numbers of their own.
struct RedistributionCache::Way : CommonOfWords {
  PlacementWord start = 0;
  PlacementWord goal = 0;
  std::array<uint8_t, kMostEnds> dim_of_end;
  std::array<uint8_t, AxisByte::kMostDims> end_of_dim;
  uint8_t ends = 0;
  // What is left to move: of the ends, and of all other dimensions together.
  std::array<int64_t, kMostEnds + 1> sizes;
  int64_t ranks = 1;

  Way(PlacementWord from, PlacementWord to, std::span<const Dim> dims, const Mesh& mesh)
      : CommonOfWords(from, to) {
    FindEnds(from, to, dims, mesh);
    auto axes = static_cast<AxisId>(mesh.axes().size());
    for (AxisId axis = 0; axis < axes; ++axis) {
      start |= Removed(ByteOf(from, axis), axis);
      goal |= Removed(ByteOf(to, axis), axis);
      if (!ByteOf(start | goal, axis).replicated()) ranks *= mesh[axis].size;
    }
  }

  // The same placement among those of the whole tensor.
  PlacementWord Restored(PlacementWord word) const {
    PlacementWord out = common;
    for (AxisId axis = 0; word != 0; ++axis, word >>= 8) {
      AxisByte use = ByteOf(word, 0);
      if (use.splits()) {
        size_t dim = dim_of_end[use.dim()];
        out |= AtAxis(axis, AxisByte::Split(dim, use.place() + prefix[dim]));
      } else {
        out |= AtAxis(axis, use.byte);
      }
    }
    return out;
  }

 private:
  // Ends have the numbers that PlanRedistribution gives them.
  void FindEnds(PlacementWord from, PlacementWord to, std::span<const Dim> dims, const Mesh& mesh) {
    std::array<int64_t, AxisByte::kMostDims> parts;
    std::copy(dims.begin(), dims.end(), parts.begin());
    // Outer axes cut first; what is left after several does not depend on their order.
    auto axes = static_cast<AxisId>(mesh.axes().size());
    for (AxisId axis = 0; axis < axes; ++axis) {
      AxisByte both = ByteOf(common, axis);
      if (both.splits() && !IsSymbol(parts[both.dim()]))
        parts[both.dim()] = CeilDiv(parts[both.dim()], mesh[axis].size);
    }
    uint32_t is_end = 0;
    for (PlacementWord word : {from, to}) {
      for (; word != 0; word >>= 8) {
        AxisByte use = ByteOf(word, 0);
        if (!use.splits() || use.place() < prefix[use.dim()] || (is_end >> use.dim() & 1) != 0)
          continue;
        is_end |= 1U << use.dim();
        end_of_dim[use.dim()] = ends;
        sizes[ends] = parts[use.dim()];
        dim_of_end[ends++] = static_cast<uint8_t>(use.dim());
      }
    }
    int64_t rest = 1;
    for (size_t d = 0; d < dims.size(); ++d) {
      if ((is_end >> d & 1) == 0 && !IsSymbol(dims[d]) &&
          __builtin_mul_overflow(rest, parts[d], &rest))
        rest = INT64_MAX / 8;
    }
    sizes[ends] = rest;
  }

  PlacementWord Removed(AxisByte use, AxisId axis) const {
    if (use.replicated() || ByteOf(common, axis).byte == use.byte) return 0;
    if (use.pending()) return AtAxis(axis, use.byte);
    return AtAxis(axis, AxisByte::Split(end_of_dim[use.dim()], use.place() - prefix[use.dim()]));
  }
};

RedistributionCache::Group& RedistributionCache::GroupOf(const Way& way) {
  SizeKey key{way.ends, UsedAxes(way.start | way.goal), way.sizes};
  Group*& known = group_of_[key];
  if (known == nullptr) known = &FindGroup(way, key);
  return *known;
}

// A dimension that divides by all axes that a step may be over counts alike in everything that steps move; so does what is not split. As
// long as all of that divides by these axes twice, nothing is rounded, and the best way does not depend on these sizes.
RedistributionCache::Group& RedistributionCache::FindGroup(const Way& way, SizeKey key) {
  constexpr int64_t kAny = INT64_MAX;
  auto divides = [&](Dim dim) { return !IsSymbol(dim) && dim > 0 && dim % way.ranks == 0; };
  int64_t even = way.sizes[way.ends];
  bool exact = even < INT64_MAX / 8;
  for (size_t e = 0; e < way.ends; ++e)
    exact &= !divides(way.sizes[e]) || !__builtin_mul_overflow(even, way.sizes[e], &even);
  int64_t twice = 0;
  exact &= !__builtin_mul_overflow(way.ranks, way.ranks, &twice) && even > 0 && even % twice == 0;
  if (exact) {
    for (size_t e = 0; e < way.ends; ++e)
      key.sizes[e] = divides(way.sizes[e]) ? kAny : key.sizes[e];
    key.sizes[way.ends] = kAny;
  }
  auto at = groups_.find(key);
  if (at != groups_.end()) return at->second;
  std::vector<int64_t> sizes;
  // Prices only: an unknown size counts once for all ways.
  for (size_t e = 0; e < way.ends; ++e) sizes.push_back(IsSymbol(way.sizes[e]) ? 1 : way.sizes[e]);
  Group group{StepGraph(sizes, way.sizes[way.ends], key.axes, mesh_)};
  return groups_.emplace(key, std::move(group)).first->second;
}

RedistributionSearch& RedistributionCache::SearchFor(const Way& way, ReduceOrder order) {
  Group& group = GroupOf(way);
  uint8_t goal_axes = UsedAxes(way.goal);
  uint32_t start = group.graph.NumberOf(way.start);
  if (group.starting.size() <= start) group.starting.resize(group.graph.size());
  std::vector<RedistributionSearch*>& starting = group.starting[start];
  size_t at = static_cast<size_t>(order) << mesh_.axes().size() | goal_axes;
  if (starting.size() <= at) starting.resize(at + 1);
  if (starting[at] == nullptr)
    starting[at] = &group.searches.emplace_back(group.graph, way.start, goal_axes, order);
  return *starting[at];
}

bool RedistributionCache::Find(PlacementWord from, PlacementWord to, std::span<const Dim> dims,
                               ReduceOrder order, std::vector<PlacementWord>& stops) {
  Way way(from, to, dims, mesh_);
  // Only numbers and vectors that are whole become pending, by forgetting.
  bool small = dims.size() == 1 || std::ranges::all_of(dims, [](Dim dim) { return dim == 1; });
  bool forgets = false;
  auto axes = static_cast<AxisId>(mesh_.axes().size());
  for (AxisId axis = 0; axis < axes; ++axis) {
    AxisByte use = ByteOf(way.goal, axis);
    if (!use.pending()) continue;
    if (!small || use.op() != ReduceOp::kSum || !ByteOf(way.start, axis).replicated()) return false;
    way.goal &= ~AtAxis(axis, 0xff);
    forgets = true;
  }
  size_t first = stops.size();
  if (!SearchFor(way, order).Run(way.goal, stops)) {
    Result<std::vector<RedistributionStep>> steps =
        PlanRedistribution(PlacementOf(from, dims.size()), PlacementOf(to, dims.size()),
                           Dims(dims.begin(), dims.end()), mesh_, order);
    for (const RedistributionStep& step : *steps) stops.push_back(*WordOf(step.to));
    return true;
  }
  for (size_t i = first; i < stops.size(); ++i) stops[i] = way.Restored(stops[i]);
  if (forgets) stops.push_back(to);
  return true;
}

}  // namespace heddle
