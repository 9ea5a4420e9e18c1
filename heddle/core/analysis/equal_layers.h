// Equal layers: runs of a graph that repeat, node by node.
//
// Two nodes are equal if they apply the same op with the same attributes to operands and results of
// the same types. A layer of n nodes repeats if at least n consecutive nodes equal the nodes n
// positions later. Names and scopes are ignored, because imported graphs have none.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle {

// `count` consecutive layers of `nodes` nodes each.
struct LayerRun {
  uint32_t first = 0;
  uint32_t nodes = 0;
  uint32_t count = 0;

  uint32_t end() const { return first + nodes * count; }
  bool operator==(const LayerRun&) const = default;
};

// The position of a node in a run of layers.
struct LayerPlace {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t run = kNone;
  uint32_t layer = 0;
  uint32_t slot = 0;
};

// Runs of at least three layers that do not overlap, in graph order. The longest runs are found
// first.
std::vector<LayerRun> FindEqualLayers(const Graph& graph);
// Indexed by node.
std::vector<LayerPlace> PlacesIn(const std::vector<LayerRun>& runs, size_t node_count);

}  // namespace heddle
