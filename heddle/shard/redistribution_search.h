// The search behind PlanRedistribution: the cheapest steps between two placements that have nothing in common.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <queue>
#include <span>
#include <unordered_map>
#include <vector>

#include "heddle/base/division.h"
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

// Dijkstra's search over placements. Planners ask for millions of ways, so a placement is a few words here and nothing is allocated for a
// step.
class RedistributionSearch {
 public:
  // Everything outlives this. `to` has no pending sums.
  RedistributionSearch(const Placement& from, const Placement& to, const Dims& dims,
                       const Mesh& mesh, ReduceOrder order);

  // Nothing if there is no way, or if too many placements would have to be looked at.
  std::optional<std::vector<RedistributionStep>> Run();
  // The one step to the goal, or nothing.
  std::optional<RedistributionStep> RunOnce();

 private:
  // Each axis splits at most one dimension at either end.
  static constexpr size_t kMostEnds = 2 * Mesh::kMaxAxes;
  static constexpr size_t kMostPlacements = 20'000;

  // A placement on the way. Splits are those of `ends_`.
  struct Spot {
    std::array<Axes, kMostEnds> splits = {};
    uint8_t pending_count = 0;
    std::array<Partial, Mesh::kMaxAxes> pending = {};

    std::span<const Partial> partials() const { return {pending.data(), pending_count}; }
    bool operator==(const Spot& other) const;
    bool operator<(const Spot& other) const;
  };
  struct SpotHash {
    size_t operator()(const Spot& spot) const;
  };
  // What a step does, without where it leads. Dimensions are numbers of `ends_`.
  struct Move {
    StepKind kind;
    Axes over;
    size_t end = 0;
    size_t concat_end = 0;
    ReduceOp op = ReduceOp::kSum;
  };
  struct Reached {
    Spot spot;
    RedistributionPrice price;
    Move move;
    uint32_t before;
  };
  static constexpr uint32_t kStart = UINT32_MAX;

  Spot SpotOf(const Placement& placement) const;
  Placement PlacementOf(const Spot& spot) const;
  RedistributionStep StepTo(const Reached& reached) const;
  std::vector<RedistributionStep> PathTo(uint32_t at) const;

  void Reach(const Spot& spot, RedistributionPrice price, const Move& move, uint32_t before);
  void Take(const Spot& spot, int64_t moved, const Move& move, uint32_t before);

  void Gather(uint32_t at);
  void Scatter(uint32_t at);
  void Reduce(uint32_t at);
  void Slice(uint32_t at);
  static Spot Without(const Spot& spot, const Axes& axes);
  bool MustReduce(const Spot& spot) const;
  bool EndsSplit(AxisId axis) const;

  int64_t Elements(const Spot& spot) const;
  int64_t Share(int64_t elements, const Axes& over) const;

  struct Dearer {
    const RedistributionSearch& search;
    using Open = std::pair<RedistributionPrice, uint32_t>;
    bool operator()(const Open& a, const Open& b) const;
  };

  const Placement& to_;
  const Dims& dims_;
  const Mesh& mesh_;
  ReduceOrder order_;
  // Dimensions that are split at either end: no other is worth splitting on the way.
  std::vector<size_t> ends_;
  Spot goal_;
  std::vector<Reached> reached_;
  std::unordered_map<Spot, uint32_t, SpotHash> index_;
  // What is here at a price that it no longer has was reached in a cheaper way since.
  std::priority_queue<Dearer::Open, std::vector<Dearer::Open>, Dearer> open_;
};

}  // namespace heddle
