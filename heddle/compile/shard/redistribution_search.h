// The search of PlanRedistribution: the cheapest steps between two placements that share no part.
#pragma once

#include <optional>
#include <vector>

#include "heddle/compile/shard/redistribution.h"
#include "heddle/compile/shard/redistribution_graph.h"

namespace heddle::compile {

// Dijkstra's algorithm over placements. Planners request millions of paths. Placements and steps
// are therefore numbers in a graph that searches share, and a search continues where it stopped
// when the next goal is requested.
class RedistributionSearch {
 public:
  // Goals have no pending sums, and split exactly `goal_axes`. The graph must outlive this.
  RedistributionSearch(RedistributionGraph& graph, PackedPlacement from, uint8_t goal_axes,
                       ReduceOrder order);

  // Appends the placements after each step to `stops`. Consecutive slices of one dimension over
  // single axes count as one step. Returns false if there is no path, or if the search would visit
  // too many placements.
  bool Run(PackedPlacement to, std::vector<PackedPlacement>& stops);
  // The steps themselves, or nullopt.
  std::optional<std::vector<RedistributionGraph::Step>> Run(PackedPlacement to);

 private:
  static constexpr size_t kMostPlacements = 20'000;
  static constexpr uint32_t kNone = UINT32_MAX;

  // A compact RedistributionPrice. No useful path has more steps than the fields can store.
  struct Price {
    int64_t moved = 0;
    uint8_t collectives = 0;
    uint8_t steps = 0;

    bool operator==(const Price&) const = default;
    bool operator<(const Price& other) const {
      if (collectives != other.collectives) return collectives < other.collectives;
      return moved != other.moved ? moved < other.moved : steps < other.steps;
    }
  };
  // The best known path to a placement: the placement before it, and the index of the step from
  // there. Compact, because there are millions of these.
  struct Place {
    static constexpr uint8_t kUnreached = UINT8_MAX;
    int64_t moved = 0;
    uint32_t before = kNone;
    uint16_t step : 15 = 0;
    uint16_t settled : 1 = 0;
    uint8_t collectives = kUnreached;
    uint8_t steps = 0;

    Price price() const { return {moved, collectives, steps}; }
  };
  struct Open {
    int64_t moved;
    uint32_t at;
    uint8_t collectives;
    uint8_t steps;

    Price price() const { return {moved, collectives, steps}; }
  };

  uint32_t Settle(uint32_t goal);
  void Leave(uint32_t at);
  bool MayTake(const RedistributionGraph::Step& step, uint8_t pending) const;
  void Reach(uint32_t at, const Price& price, uint32_t before, size_t step);
  // For a heap with the cheapest first: whether `a` is more expensive. Ties are broken by a fixed
  // order.
  bool IsMoreExpensive(const Open& a, const Open& b) const {
    if (a.collectives != b.collectives) return b.collectives < a.collectives;
    if (a.moved != b.moved) return b.moved < a.moved;
    if (a.steps != b.steps) return b.steps < a.steps;
    return graph_.IsBefore(b.at, a.at);
  }
  // The last step of the best path to a placement, which must exist.
  RedistributionGraph::Step StepTo(uint32_t at) const {
    return graph_.StepsFrom(places_[at].before)[places_[at].step];
  }

  RedistributionGraph& graph_;
  uint8_t goal_axes_;
  ReduceOrder order_;
  // Indexed by number of the placement.
  std::vector<Place> places_;
  size_t reached_count_ = 0;
  size_t settled_count_ = 0;
  // A heap, the cheapest first. An entry with an outdated price has since been reached more
  // cheaply.
  std::vector<Open> open_;
  // The last goal, if its steps have not been followed yet.
  uint32_t unleft_ = kNone;
};

}  // namespace heddle::compile
