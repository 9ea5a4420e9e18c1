// The ways that PlanRedistribution finds, remembered. Sizes matter only where something does not divide: tensors of many shapes share one
// search, and all goals that split the same axes do.
#pragma once

#include <array>
#include <span>
#include <unordered_map>
#include <vector>

#include "heddle/shard/placement_word.h"
#include "heddle/shard/redistribution.h"
#include "heddle/shard/redistribution_search.h"

namespace heddle {

class RedistributionCache {
 public:
  // The mesh outlives this.
  explicit RedistributionCache(const Mesh& mesh) : mesh_(mesh) {}

  // The placements after each step, appended to `stops`. False where no steps lead there.
  bool Find(PlacementWord from, PlacementWord to, std::span<const Dim> dims, ReduceOrder order,
            std::vector<PlacementWord>& stops);

 private:
  // Each axis splits at most one dimension at either end.
  static constexpr size_t kMostEnds = RedistributionSearch::kMostEnds;

  struct Key {
    PlacementWord start = 0;
    // What matters of sizes: of the dimensions that are split at either end, and of all others together.
    uint8_t ends = 0;
    std::array<int64_t, kMostEnds + 1> sizes;
    uint8_t goal_axes = 0;
    ReduceOrder order = ReduceOrder::kFewest;
    bool operator==(const Key& other) const;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  struct Way;

  RedistributionSearch& SearchFor(const Way& way, ReduceOrder order);

  const Mesh& mesh_;
  std::unordered_map<Key, RedistributionSearch, KeyHash> searches_;
};

}  // namespace heddle
