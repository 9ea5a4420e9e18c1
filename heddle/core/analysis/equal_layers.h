// Equal layers: stretches of a graph that repeat, node by node.
//
// Two nodes are alike if they do the same to operands and results of the same types. Where nodes are alike with those so many
// places behind them, over at least as many places, a layer repeats. No name and no scope is looked at: imported graphs have none.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle {

// `count` layers of `nodes` nodes each, one right behind the other.
struct LayerRun {
  uint32_t first = 0;
  uint32_t nodes = 0;
  uint32_t count = 0;

  uint32_t end() const { return first + nodes * count; }
  bool operator==(const LayerRun&) const = default;
};

// Where a node stands in a run of layers.
struct LayerPlace {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t run = kNone;
  uint32_t layer = 0;
  uint32_t slot = 0;
};

// Runs of at least three layers that do not overlap, in the order of the graph. The longest are found first.
std::vector<LayerRun> FindEqualLayers(const Graph& graph);
// By node.
std::vector<LayerPlace> PlacesIn(const std::vector<LayerRun>& runs, size_t node_count);

}  // namespace heddle
