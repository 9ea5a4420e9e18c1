#include "heddle/core/ir/placement.h"

#include <algorithm>

#include <fmt/core.h>

namespace heddle {
namespace {
constexpr std::string_view kReduceOpNames[] = {"sum", "avg", "max", "min", "product"};
}  // namespace

std::string_view Name(ReduceOp op) { return kReduceOpNames[static_cast<size_t>(op)]; }

void Placement::Normalize() {
  if (std::ranges::all_of(splits, &Axes::empty)) splits.clear();
  std::ranges::sort(partials, {}, &Partial::axis);
}

std::string FormatPlacement(const Placement& placement, size_t rank, const Mesh& mesh) {
  std::string out = "[";
  for (size_t d = 0; d < rank; ++d) {
    if (d != 0) out += ',';
    Axes axes = placement.split(d);
    if (axes.empty()) {
      out += '-';
    } else if (axes.size() == 1) {
      AppendAxes(out, mesh, axes);
    } else {
      out += '{';
      AppendAxes(out, mesh, axes);
      out += '}';
    }
  }
  out += ']';
  for (const Partial& partial : placement.partials) {
    out += partial.op == ReduceOp::kSum ? "{+" : fmt::format("{{{} ", Name(partial.op));
    out += mesh[partial.axis].name + "}";
  }
  return out;
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
