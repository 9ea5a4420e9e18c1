// Caches the paths that PlanRedistribution finds. Sizes matter only if a division leaves a
// remainder, so tensors of many shapes share steps and searches. All goals that split the same axes
// share a search.
#pragma once

#include <array>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "heddle/compile/shard/packed_placement.h"
#include "heddle/compile/shard/redistribution.h"
#include "heddle/compile/shard/redistribution_graph.h"
#include "heddle/compile/shard/redistribution_search.h"
#include "heddle/compile/shard/reduced_redistribution.h"

namespace heddle::compile {

class RedistributionCache {
 public:
  // The mesh must outlive this.
  explicit RedistributionCache(const Mesh& mesh) : mesh_(mesh) {}

  // Appends the placements after each step to `stops`. Returns false if no steps lead to the
  // target.
  bool Find(PackedPlacement from, PackedPlacement to, std::span<const Dim> dims, ReduceOrder order,
            std::vector<PackedPlacement>& stops);
  // Frees the memory.
  void Forget() {
    group_of_.clear();
    groups_.clear();
  }

 private:
  static constexpr size_t kMostEnds = RedistributionGraph::kMostEnds;

  // The sizes that matter: of the dimensions that are split at either end, and of all others
  // together; and the axes in use.
  struct SizeKey {
    uint8_t ends = 0;
    uint8_t axes = 0;
    std::array<int64_t, kMostEnds + 1> sizes;
    bool operator==(const SizeKey& other) const;
  };
  struct SizeHash {
    size_t operator()(const SizeKey& key) const;
  };
  // Tensors with the same paths.
  struct Group {
    RedistributionGraph graph;
    std::deque<RedistributionSearch> searches = {};
    // Indexed by number of the start's placement: the searches for each order and set of axes.
    std::vector<std::vector<RedistributionSearch*>> starting = {};
  };

  Group& GroupOf(const ReducedRedistribution& reduced);
  Group& FindGroup(const ReducedRedistribution& reduced, SizeKey key);
  RedistributionSearch& SearchFor(const ReducedRedistribution& reduced, ReduceOrder order);

  const Mesh& mesh_;
  // Keyed by the sizes that matter, and by the requested sizes.
  std::unordered_map<SizeKey, Group, SizeHash> groups_;
  std::unordered_map<SizeKey, Group*, SizeHash> group_of_;
};

}  // namespace heddle::compile
