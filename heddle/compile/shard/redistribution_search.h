// The search behind PlanRedistribution: the cheapest steps between two placements that have nothing in common.
#pragma once

#include <optional>
#include <vector>

#include "heddle/compile/shard/redistribution.h"
#include "heddle/compile/shard/step_graph.h"

namespace heddle::compile {

// Dijkstra's search over placements. Planners ask for millions of ways, so placements and steps come by numbers from a graph that searches
// share, and a search goes on where it stopped when it is asked for the next goal.
class RedistributionSearch {
 public:
  // Goals have no pending sums, and split `goal_axes` and no others. The graph outlives this.
  RedistributionSearch(StepGraph& graph, PlacementWord from, uint8_t goal_axes, ReduceOrder order);

  // Placements after each step are appended to `stops`; slices of one dimension, one axis after the other, are one step. False if there is
  // no way, or if too many placements would have to be looked at.
  bool Run(PlacementWord to, std::vector<PlacementWord>& stops);
  // The steps themselves, or nothing.
  std::optional<std::vector<StepGraph::Step>> Run(PlacementWord to);

 private:
  static constexpr size_t kMostPlacements = 20'000;
  static constexpr uint32_t kNone = UINT32_MAX;

  // A RedistributionPrice, small: no way that is worth a look has that many steps.
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
  // The best way to a placement so far: where its last step comes from, and which of the steps from there it is. There are millions of these.
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
  bool MayTake(const StepGraph::Step& step, uint8_t pending) const;
  void Reach(uint32_t at, const Price& price, uint32_t before, size_t step);
  // The dearer one is less. Equally cheap ones have an order of their own.
  bool IsDearer(const Open& a, const Open& b) const {
    if (a.collectives != b.collectives) return b.collectives < a.collectives;
    if (a.moved != b.moved) return b.moved < a.moved;
    if (a.steps != b.steps) return b.steps < a.steps;
    return graph_.IsBefore(b.at, a.at);
  }
  // The step that leads to a placement; there is one.
  StepGraph::Step StepTo(uint32_t at) const {
    return graph_.StepsFrom(places_[at].before)[places_[at].step];
  }

  StepGraph& graph_;
  uint8_t goal_axes_;
  ReduceOrder order_;
  // By number.
  std::vector<Place> places_;
  size_t reached_count_ = 0;
  size_t settled_count_ = 0;
  // A heap, the cheapest first. What is here at a price that it no longer has was reached in a cheaper way since.
  std::vector<Open> open_;
  // The last goal, if nothing was reached from there yet.
  uint32_t unleft_ = kNone;
};

}  // namespace heddle::compile
