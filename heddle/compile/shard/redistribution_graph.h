// RedistributionGraph: the placements between two others and the single steps between them, shared
// by many searches.
#pragma once

#include <array>
#include <span>
#include <utility>
#include <vector>

#include "heddle/compile/shard/packed_placement.h"
#include "heddle/compile/shard/redistribution.h"
#include "heddle/core/base/hash.h"
#include "heddle/core/ir/mesh.h"

namespace heddle::compile {

// The axes of a list from index `from` on.
Axes Suffix(const Axes& axes, size_t from);

// A bit for each axis.
constexpr uint8_t MaskOf(const Axes& axes) {
  uint8_t mask = 0;
  for (AxisId axis : axes) mask |= static_cast<uint8_t>(1U << axis);
  return mask;
}

// For tensors of one size. Only some dimensions are split on the reduced, the ends; placements
// number them from 0.
class RedistributionGraph {
 public:
  // Each axis splits at most one dimension at the start of a path, and one at its end.
  static constexpr size_t kMostEnds = 2 * Mesh::kMaxAxes;

  struct Step {
    // The number of the placement after the step.
    uint32_t to = 0;
    // Nullopt: a slice.
    std::optional<CollectiveKind> kind = {};
    ReduceOp op = ReduceOp::kSum;
    // The end that is sliced, gathered or scattered; for an all-to-all, the end that is split and
    // the one that is joined.
    uint8_t end = 0;
    uint8_t concat_end = 0;
    uint8_t mask = 0;
    Axes over = {};
    // Elements that one rank sends.
    int64_t moved = 0;
  };

  // Sizes of the ends, and of all other dimensions together; and the axes in use. The mesh must
  // outlive this.
  RedistributionGraph(std::span<const int64_t> ends, int64_t rest, uint8_t axes, const Mesh& mesh);

  uint32_t NumberOf(PackedPlacement packed);
  size_t size() const { return places_.size(); }
  PackedPlacement packed(uint32_t number) const { return places_[number].packed; }
  // Axes over which reductions are pending.
  uint8_t pending(uint32_t number) const { return places_[number].pending; }
  // A fixed total order that breaks ties between equally expensive paths.
  bool IsBefore(uint32_t a, uint32_t b) const { return places_[a].order < places_[b].order; }

  // All steps from a placement: reductions first, then gathers, then slices over single axes. Valid
  // until the next call.
  std::span<const Step> StepsFrom(uint32_t number);

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  // With many pending sums, each placement has thousands of steps. Steps beyond this limit are
  // recomputed on each call.
  static constexpr size_t kMostSteps = size_t{1} << 18;
  using Order = std::pair<uint64_t, uint64_t>;

  struct Place {
    PackedPlacement packed;
    Order order;
    uint8_t pending;
    // Its steps, after the first call of StepsFrom.
    uint32_t first = kNone;
    uint32_t count = 0;
  };
  // The start of a step.
  struct From {
    PackedPlacement packed;
    std::array<Axes, kMostEnds> splits = {};
    std::vector<Partial> partials = {};
    int64_t elements = 0;
  };

  Order OrderOf(PackedPlacement packed) const;
  From FromOf(PackedPlacement packed) const;
  void Add(PackedPlacement to, Step step);
  void Scatter(const From& from);
  void Reduce(const From& from);
  void Gather(const From& from);
  void Slice(const From& from);
  int64_t Elements(PackedPlacement packed) const;
  int64_t Share(int64_t elements, const Axes& over) const;

  std::vector<int64_t> ends_;
  int64_t rest_;
  uint8_t axes_;
  const Mesh& mesh_;
  std::vector<Place> places_;
  // Numbers of placements, by hashes of the packed placements.
  HashIndex numbers_;
  std::vector<Step> steps_;
  // The result of the last call of StepsFrom.
  std::vector<Step> last_;
};

}  // namespace heddle::compile
