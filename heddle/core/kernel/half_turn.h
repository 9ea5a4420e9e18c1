// Half turns: nodes that take elements from the other half of each row, as rotary embeddings and
// their gradients do.
//
//   cat([-x[64:], x[:64]])                        a row of 128 elements, turned by halves
//   slice_backward(-x[:64], start=64)             zeros before
//   slice_backward(x[64:], start=0, end=64)       zeros after
//
// A kernel of rows has a row in the lanes of one warp: the other half is a shuffle away.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle {

// Elements of a row: 4 for each lane of a warp.
inline constexpr int64_t kTurnWidth = 128;

struct HalfTurn {
  // The value whose rows are turned.
  ValueId source;
  // The slices and negations in between.
  std::vector<NodeId> parts;
  // An element: an expression of `other`, the element of `source` in the other half, and of
  // `lower`, whether this one is in the first half.
  std::string text;
};
std::optional<HalfTurn> HalfTurnOf(const Graph& graph, NodeId node);

}  // namespace heddle
