#include "heddle/ir/placement.h"

#include <algorithm>

namespace heddle {

void Placement::Normalize() {
  if (std::ranges::all_of(splits, &Axes::empty)) splits.clear();
  std::ranges::sort(partials, {}, &Partial::axis);
}

PlacementId PlacementTable::Intern(Placement placement) {
  placement.Normalize();
  if (placement.replicated()) return kReplicated;
  uint64_t hash = Hash(placement);
  uint32_t found =
      index_.Find(hash, [&](uint32_t n) { return placements_[PlacementId(n)] == placement; });
  if (found != HashIndex::kNone) return PlacementId(found);
  PlacementId id = placements_.Add(std::move(placement));
  index_.Insert(hash, id.index());
  return id;
}

uint64_t PlacementTable::Hash(const Placement& placement) {
  uint64_t hash = placement.splits.size();
  for (const Axes& axes : placement.splits) hash = MixHash(hash, axes.bits());
  for (const Partial& partial : placement.partials) {
    hash = MixHash(hash, uint64_t{1} << 32 | static_cast<uint64_t>(partial.op) << 8 | partial.axis);
  }
  return hash;
}

}  // namespace heddle
