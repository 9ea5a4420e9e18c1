#include "heddle/cost/comm/group.h"

#include <algorithm>
#include <vector>

namespace heddle {
namespace {

// Ranks, rising, that differ from the first along these axes only, which rise too.
std::vector<int64_t> Spread(const Mesh& mesh, const std::vector<AxisId>& axes) {
  std::vector<int64_t> ranks{0};
  for (AxisId axis : axes) {
    int64_t stride = 1;
    for (size_t inner = axis + 1; inner < mesh.axes().size(); ++inner)
      stride *= mesh[static_cast<AxisId>(inner)].size;
    std::vector<int64_t> next;
    next.reserve(ranks.size() * static_cast<size_t>(mesh[axis].size));
    for (int64_t rank : ranks) {
      for (int64_t i = 0; i < mesh[axis].size; ++i) next.push_back(rank + i * stride);
    }
    ranks = std::move(next);
  }
  return ranks;
}

}  // namespace

GroupShape ShapeOfGroups(const Mesh& mesh, const Axes& axes, int64_t devices_per_node) {
  std::vector<AxisId> inside;
  std::vector<AxisId> outside;
  for (size_t i = 0; i < mesh.axes().size(); ++i) {
    auto axis = static_cast<AxisId>(i);
    (axes.contains(axis) ? inside : outside).push_back(axis);
  }
  std::vector<int64_t> members = Spread(mesh, inside);
  GroupShape worst;
  worst.ranks = static_cast<int64_t>(members.size());
  worst.fewest_per_node = worst.ranks;
  // Groups whose first ranks stand at the same place of a node look alike.
  std::vector<bool> seen(static_cast<size_t>(devices_per_node));
  for (int64_t first : Spread(mesh, outside)) {
    auto place = static_cast<size_t>(first % devices_per_node);
    if (seen[place]) continue;
    seen[place] = true;
    int64_t nodes = 0;
    int64_t here = 0;
    int64_t last_node = -1;
    auto leave_node = [&] {
      if (here == 0) return;
      worst.most_per_node = std::max(worst.most_per_node, here);
      worst.fewest_per_node = std::min(worst.fewest_per_node, here);
    };
    for (int64_t member : members) {
      int64_t node = (first + member) / devices_per_node;
      if (node != last_node) {
        leave_node();
        here = 0;
        ++nodes;
        last_node = node;
      }
      ++here;
    }
    leave_node();
    worst.nodes = std::max(worst.nodes, nodes);
  }
  return worst;
}

}  // namespace heddle
