// The positions of a sequence that a rank has if mesh axes split it.
//
// Consecutive parts give the last rank most of the work of a causal mask. In head-tail order, a
// sequence has two parts for each rank of the first axis: rank r has part r and, counted from the
// end, part r again. All ranks then have the same work. With two ranks and eight positions:
//
//   rank 0: 0 1 6 7     rank 1: 2 3 4 5
#pragma once

#include <vector>

#include "heddle/core/ir/mesh.h"
#include "heddle/core/ir/type.h"

namespace heddle {

// Whether positions that are split over `axes` are in head-tail order.
bool IsHeadTail(const Axes& axes, const Mesh& mesh);

// All positions in the order of the ranks, as consecutive ranges: a single one unless they are in
// head-tail order. `whole` is the number of positions.
std::vector<Part> PositionOrder(int64_t whole, const Axes& axes, const Mesh& mesh);

// The ranges of one rank, if the axes divide the positions evenly.
std::vector<Part> PositionsAt(int64_t whole, const Axes& axes, const Mesh& mesh, int64_t rank);

// The queries of a rank, and the keys that they see, in one step of ring attention. In step `i`,
// the rank has the keys of the rank `i` before it. Both are ranges of the `size` positions of a
// rank. `causal`: queries see no later keys; otherwise they see all. Without visible keys, both are
// empty.
struct RingPart {
  Part queries = {};
  Part keys = {};
  bool causal = false;
};
// `axis` splits the positions.
RingPart RingPartAt(int64_t size, AxisId axis, const Mesh& mesh, int64_t rank, int64_t step);

}  // namespace heddle
