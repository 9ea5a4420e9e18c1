// The search behind PlanRedistribution: the cheapest steps between two placements that have nothing in common.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <queue>
#include <span>
#include <vector>

#include "heddle/base/division.h"
#include "heddle/shard/placement_word.h"
#include "heddle/shard/redistribution.h"

namespace heddle {

// Elements of one rank's part, the largest, where dimension d is split over axes_of(d).
template <typename AxesOf>
int64_t ElementsOfPart(const Dims& dims, const Mesh& mesh, const AxesOf& axes_of) {
  int64_t elements = 1;
  for (size_t d = 0; d < dims.size(); ++d) {
    // Prices only: an unknown size counts once for all ways.
    int64_t size = IsSymbol(dims[d]) ? 1 : dims[d];
    for (AxisId axis : axes_of(d)) size = CeilDiv(size, mesh[axis].size);
    if (__builtin_mul_overflow(elements, size, &elements)) return INT64_MAX / 8;
  }
  return std::min(elements, INT64_MAX / 8);
}

// The first and the last axes of a list.
Axes Prefix(const Axes& axes, size_t n);
Axes Suffix(const Axes& axes, size_t from);

// Dijkstra's search over placements. Planners ask for millions of ways, so a placement is one word here, nothing is allocated for a step,
// and a search goes on where it stopped when it is asked for the next goal.
class RedistributionSearch {
 public:
  // Each axis splits at most one dimension at either end.
  static constexpr size_t kMostEnds = 2 * Mesh::kMaxAxes;

  // Goals have no pending sums, split `goal_axes` and no others, and only the first dimensions, as many as `ends`; so does `from`. The mesh
  // outlives this.
  RedistributionSearch(PlacementWord from, size_t ends, const Axes& goal_axes, Dims dims,
                       const Mesh& mesh, ReduceOrder order);
  // For one goal.
  RedistributionSearch(const Placement& from, const Placement& to, const Dims& dims,
                       const Mesh& mesh, ReduceOrder order);

  // Nothing if there is no way, or if too many placements would have to be looked at.
  std::optional<std::vector<RedistributionStep>> Run(const Placement& to);
  // The same: placements after each step are appended to `stops`. False if there is no way.
  bool Run(PlacementWord to, std::vector<PlacementWord>& stops);
  // The one step to the goal, or nothing.
  std::optional<RedistributionStep> RunOnce(const Placement& to);

 private:
  static constexpr size_t kMostPlacements = 20'000;

  // A placement on the way. Splits are those of `ends_`.
  struct Spot {
    std::array<Axes, kMostEnds> splits = {};
    uint8_t pending_count = 0;
    std::array<Partial, Mesh::kMaxAxes> pending = {};

    std::span<const Partial> partials() const { return {pending.data(), pending_count}; }
    bool operator<(const Spot& other) const;
  };
  static PlacementWord WordOf(const Spot& spot);
  static Spot SpotOf(PlacementWord word);

  // What a step does, without where it leads. Dimensions are numbers of `ends_`.
  struct Move {
    StepKind kind = StepKind::kSlice;
    ReduceOp op = ReduceOp::kSum;
    uint8_t end = 0;
    uint8_t concat_end = 0;
    Axes over = {};
  };
  struct Reached {
    PlacementWord spot;
    RedistributionPrice price;
    Move move;
    uint32_t before;
    bool settled = false;
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  Spot SpotOf(const Placement& placement) const;
  Placement PlacementAt(PlacementWord spot) const;
  uint32_t Settle(PlacementWord goal);
  RedistributionStep StepTo(const Reached& reached) const;
  std::vector<RedistributionStep> PathTo(uint32_t at) const;

  void Begin(PlacementWord from);
  uint32_t& Slot(PlacementWord spot);
  void Reach(PlacementWord spot, RedistributionPrice price, const Move& move, uint32_t before);
  void Take(PlacementWord spot, int64_t moved, const Move& move, uint32_t before);

  // Where steps begin.
  struct From {
    uint32_t at;
    PlacementWord word;
    Spot spot;
    int64_t elements;
  };
  void Leave(uint32_t at);
  void Gather(const From& from);
  void Scatter(const From& from);
  void Reduce(const From& from);
  void Slice(const From& from);
  bool MustReduce(const Spot& spot) const;
  bool EndsSplit(AxisId axis) const { return goal_axes_.contains(axis); }

  int64_t Elements(PlacementWord word) const;
  int64_t Share(int64_t elements, const Axes& over) const;

  struct Open {
    RedistributionPrice price;
    PlacementWord spot;
    uint32_t at;
    // The dearer one is less.
    bool operator<(const Open& other) const;
  };

  Dims dims_;
  const Mesh& mesh_;
  ReduceOrder order_;
  // Dimensions that are split at either end: no other is worth splitting on the way.
  std::vector<size_t> ends_;
  Axes goal_axes_;
  // Sizes of the ends, and of all other dimensions together.
  std::array<int64_t, kMostEnds> end_sizes_ = {};
  int64_t rest_ = 1;
  std::vector<Reached> reached_;
  // Numbers of what was reached, by scrambled words; at most half of it is used.
  std::vector<uint32_t> table_;
  // What is here at a price that it no longer has was reached in a cheaper way since.
  std::priority_queue<Open> open_;
  // The last goal, if nothing was reached from there yet.
  uint32_t unleft_ = kNone;
};

}  // namespace heddle
