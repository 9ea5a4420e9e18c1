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

RedistributionCache::Group& RedistributionCache::GroupOf(const ReducedRedistribution& reduced) {
  SizeKey key{reduced.ends, UsedAxes(reduced.start | reduced.goal), reduced.sizes};
  Group*& known = group_of_[key];
  if (known == nullptr) known = &FindGroup(reduced, key);
  return *known;
}

// All dimensions that divide evenly by every axis of a step are interchangeable in the moved
// elements, and so are unsplit dimensions. If the sizes divide by these axes twice, no size is
// rounded, and the best path does not depend on them.
RedistributionCache::Group& RedistributionCache::FindGroup(const ReducedRedistribution& reduced,
                                                           SizeKey key) {
  constexpr int64_t kAny = INT64_MAX;
  auto divides = [&](Dim dim) { return !IsSymbol(dim) && dim > 0 && dim % reduced.ranks == 0; };
  int64_t even = reduced.sizes[reduced.ends];
  bool exact = even < INT64_MAX / 8;
  for (size_t e = 0; e < reduced.ends; ++e)
    exact &= !divides(reduced.sizes[e]) || !__builtin_mul_overflow(even, reduced.sizes[e], &even);
  int64_t twice = 0;
  exact &= !__builtin_mul_overflow(reduced.ranks, reduced.ranks, &twice) && even > 0 &&
           even % twice == 0;
  if (exact) {
    for (size_t e = 0; e < reduced.ends; ++e)
      key.sizes[e] = divides(reduced.sizes[e]) ? kAny : key.sizes[e];
    key.sizes[reduced.ends] = kAny;
  }
  auto at = groups_.find(key);
  if (at != groups_.end()) return at->second;
  Group group{reduced.Graph(mesh_)};
  return groups_.emplace(key, std::move(group)).first->second;
}

RedistributionSearch& RedistributionCache::SearchFor(const ReducedRedistribution& reduced,
                                                     ReduceOrder order) {
  Group& group = GroupOf(reduced);
  uint8_t goal_axes = UsedAxes(reduced.goal);
  uint32_t start = group.graph.NumberOf(reduced.start);
  if (group.starting.size() <= start) group.starting.resize(group.graph.size());
  std::vector<RedistributionSearch*>& starting = group.starting[start];
  size_t at = static_cast<size_t>(order) << mesh_.axes().size() | goal_axes;
  if (starting.size() <= at) starting.resize(at + 1);
  if (starting[at] == nullptr)
    starting[at] = &group.searches.emplace_back(group.graph, reduced.start, goal_axes, order);
  return *starting[at];
}

bool RedistributionCache::Find(PackedPlacement from, PackedPlacement to, std::span<const Dim> dims,
                               ReduceOrder order, std::vector<PackedPlacement>& stops) {
  ReducedRedistribution reduced(from, to, dims, mesh_);
  std::optional<Axes> forgotten = reduced.TakeForgotten();
  if (!forgotten) return false;
  size_t first = stops.size();
  if (!SearchFor(reduced, order).Run(reduced.goal, stops)) {
    Result<std::vector<RedistributionStep>> steps =
        PlanRedistribution(Unpack(from, dims.size()), Unpack(to, dims.size()),
                           Dims(dims.begin(), dims.end()), mesh_, order);
    for (const RedistributionStep& step : *steps) stops.push_back(*Pack(step.to));
    return true;
  }
  for (size_t i = first; i < stops.size(); ++i) stops[i] = reduced.Restored(stops[i]);
  if (!forgotten->empty()) stops.push_back(to);
  return true;
}

}  // namespace heddle::compile
