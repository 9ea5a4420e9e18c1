// The ways that PlanRedistribution finds, remembered. Sizes matter only where something does not divide: tensors of many shapes share
// their steps and searches, and all goals that split the same axes share a search.
#pragma once

#include <array>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "heddle/compile/shard/placement_word.h"
#include "heddle/compile/shard/redistribution.h"
#include "heddle/compile/shard/redistribution_search.h"
#include "heddle/compile/shard/reduced_way.h"
#include "heddle/compile/shard/step_graph.h"

namespace heddle::compile {

class RedistributionCache {
 public:
  // The mesh outlives this.
  explicit RedistributionCache(const Mesh& mesh) : mesh_(mesh) {}

  // The placements after each step, appended to `stops`. False where no steps lead there.
  bool Find(PlacementWord from, PlacementWord to, std::span<const Dim> dims, ReduceOrder order,
            std::vector<PlacementWord>& stops);
  // Gives memory back.
  void Forget() {
    group_of_.clear();
    groups_.clear();
  }

 private:
  static constexpr size_t kMostEnds = StepGraph::kMostEnds;

  // What matters of sizes: of the dimensions that are split at either end, and of all others together; and the axes that are used.
  struct SizeKey {
    uint8_t ends = 0;
    uint8_t axes = 0;
    std::array<int64_t, kMostEnds + 1> sizes;
    bool operator==(const SizeKey& other) const;
  };
  struct SizeHash {
    size_t operator()(const SizeKey& key) const;
  };
  // Tensors that go the same ways.
  struct Group {
    StepGraph graph;
    std::deque<RedistributionSearch> searches = {};
    // By the number of the placement that they start from: those for each order and set of axes, where there is one.
    std::vector<std::vector<RedistributionSearch*>> starting = {};
  };

  Group& GroupOf(const ReducedWay& way);
  Group& FindGroup(const ReducedWay& way, SizeKey key);
  RedistributionSearch& SearchFor(const ReducedWay& way, ReduceOrder order);

  const Mesh& mesh_;
  // By the sizes that matter, and by all that were asked for.
  std::unordered_map<SizeKey, Group, SizeHash> groups_;
  std::unordered_map<SizeKey, Group*, SizeHash> group_of_;
};

}  // namespace heddle::compile
