#include "heddle/compile/shard/redistribution_cache.h"

#include <algorithm>

#include "heddle/core/base/hash.h"

namespace heddle::compile {

bool RedistributionCache::SizeKey::operator==(const SizeKey& other) const {
  return ends == other.ends && axes == other.axes &&
         std::equal(sizes.begin(), sizes.begin() + ends + 1, other.sizes.begin());
}

size_t RedistributionCache::SizeHash::operator()(const SizeKey& key) const {
  uint64_t hash = uint64_t{key.axes} << 8 | key.ends;
  for (size_t i = 0; i <= key.ends; ++i) hash = MixHash(hash, static_cast<uint64_t>(key.sizes[i]));
  return hash;
}

RedistributionCache::Group& RedistributionCache::GroupOf(const ReducedWay& way) {
  SizeKey key{way.ends, UsedAxes(way.start | way.goal), way.sizes};
  Group*& known = group_of_[key];
  if (known == nullptr) known = &FindGroup(way, key);
  return *known;
}

// All dimensions that divide evenly by every axis of a step are interchangeable in the moved
// elements, and so are unsplit dimensions. If the sizes divide by these axes twice, no size is
// rounded, and the best path does not depend on them.
RedistributionCache::Group& RedistributionCache::FindGroup(const ReducedWay& way, SizeKey key) {
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
  Group group{way.Graph(mesh_)};
  return groups_.emplace(key, std::move(group)).first->second;
}

RedistributionSearch& RedistributionCache::SearchFor(const ReducedWay& way, ReduceOrder order) {
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
  ReducedWay way(from, to, dims, mesh_);
  std::optional<Axes> forgotten = way.TakeForgotten();
  if (!forgotten) return false;
  size_t first = stops.size();
  if (!SearchFor(way, order).Run(way.goal, stops)) {
    Result<std::vector<RedistributionStep>> steps =
        PlanRedistribution(PlacementOf(from, dims.size()), PlacementOf(to, dims.size()),
                           Dims(dims.begin(), dims.end()), mesh_, order);
    for (const RedistributionStep& step : *steps) stops.push_back(*WordOf(step.to));
    return true;
  }
  for (size_t i = first; i < stops.size(); ++i) stops[i] = way.Restored(stops[i]);
  if (!forgotten->empty()) stops.push_back(to);
  return true;
}

}  // namespace heddle::compile
