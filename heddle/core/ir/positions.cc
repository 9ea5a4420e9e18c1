#include "heddle/core/ir/positions.h"

#include <algorithm>

namespace heddle {

bool IsHeadTail(const Axes& axes, const Mesh& mesh) {
  return !axes.empty() && mesh[axes[0]].role == AxisRole::kHeadTail && mesh[axes[0]].size > 1;
}

std::vector<Part> PositionOrder(int64_t whole, const Axes& axes, const Mesh& mesh) {
  if (!IsHeadTail(axes, mesh)) return {{0, whole}};
  int64_t ranks = mesh[axes[0]].size;
  int64_t size = whole / (2 * ranks);
  std::vector<Part> order;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    order.push_back({rank * size, size});
    order.push_back({(2 * ranks - 1 - rank) * size, size});
  }
  return order;
}

std::vector<Part> PositionsAt(int64_t whole, const Axes& axes, const Mesh& mesh, int64_t rank) {
  Part own = PartAt(whole, axes, mesh, rank);
  std::vector<Part> out;
  int64_t at = 0;
  for (const Part& part : PositionOrder(whole, axes, mesh)) {
    int64_t begin = std::max(own.begin, at);
    int64_t end = std::min(own.begin + own.size, at + part.size);
    if (begin < end) out.push_back({part.begin + begin - at, end - begin});
    at += part.size;
  }
  return out;
}

RingPart RingPartAt(int64_t size, AxisId axis, const Mesh& mesh, int64_t rank, int64_t step) {
  const Part all = {0, size};
  if (step == 0) return {all, all, /*causal=*/true};
  bool head_tail = IsHeadTail(Axes(axis), mesh);
  int64_t half = size / 2;
  // Keys of an earlier rank: those of its tail come after all queries.
  if (mesh.Coordinate(rank, axis) >= step) return {all, head_tail ? Part{0, half} : all};
  // Keys of a later rank: they come after the head, and before the tail.
  return head_tail ? RingPart{{half, half}, all} : RingPart{};
}

}  // namespace heddle
