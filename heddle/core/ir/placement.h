// Placements: how a tensor of a global graph is distributed over the mesh.
//
// On each mesh axis a tensor is split along one of its dimensions, partial (a reduction over the
// axis is pending), or replicated. A dimension split over several axes lists them outermost first:
// `4096{dp,tp}` is not `4096{tp,dp}`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/hash.h"
#include "heddle/core/base/id.h"
#include "heddle/core/ir/mesh.h"

namespace heddle {

// How values of several ranks combine. Also an attribute of reducing collectives.
enum class ReduceOp : uint8_t { kSum, kAvg, kMax, kMin, kProduct };
inline constexpr size_t kReduceOpCount = 5;
std::string_view Name(ReduceOp op);

// A pending reduction over an axis.
struct Partial {
  AxisId axis;
  ReduceOp op;
  bool operator==(const Partial&) const = default;
};

// The distribution of one tensor over the mesh.
struct Placement {
  // One list per dimension; empty if no dimension is split.
  std::vector<Axes> splits;
  // In mesh order.
  std::vector<Partial> partials;

  bool operator==(const Placement&) const = default;
  bool replicated() const { return splits.empty() && partials.empty(); }
  const Axes split(size_t dim) const { return dim < splits.size() ? splits[dim] : Axes(); }
  // Restores the two rules above after edits.
  void Normalize();
};

// `[16{dp},8]{+tp}` without the sizes: `[dp,-]{+tp}`.
std::string FormatPlacement(const Placement& placement, size_t rank, const Mesh& mesh);

using PlacementId = Id<struct PlacementTag>;

// The distinct placements of one graph.
class PlacementTable {
 public:
  static constexpr PlacementId kReplicated{0};

  PlacementTable() { placements_.Add({}); }

  // The id of an equal placement, which is added if it is new.
  PlacementId Intern(Placement placement);
  const Placement& operator[](PlacementId id) const { return placements_[id]; }
  uint64_t content_hash(PlacementId id) const { return Hash(placements_[id]); }
  size_t size() const { return placements_.size(); }

 private:
  static uint64_t Hash(const Placement& placement);
  Table<PlacementId, Placement> placements_;
  HashIndex index_;
};

}  // namespace heddle
