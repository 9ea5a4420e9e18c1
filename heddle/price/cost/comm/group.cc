#include "heddle/price/cost/comm/group.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace heddle::price {
namespace {

int64_t StrideOf(const Mesh& mesh, AxisId axis) {
  int64_t stride = 1;
  for (size_t inner = axis + 1; inner < mesh.axes().size(); ++inner)
    stride *= mesh[static_cast<AxisId>(inner)].size;
  return stride;
}

// Increasing ranks that differ from the first rank only along these axes, which are increasing too.
std::vector<int64_t> Spread(const Mesh& mesh, const std::vector<AxisId>& axes) {
  std::vector<int64_t> ranks{0};
  for (AxisId axis : axes) {
    int64_t stride = StrideOf(mesh, axis);
    std::vector<int64_t> next;
    next.reserve(ranks.size() * static_cast<size_t>(mesh[axis].size));
    for (int64_t rank : ranks) {
      for (int64_t i = 0; i < mesh[axis].size; ++i) next.push_back(rank + i * stride);
    }
    ranks = std::move(next);
  }
  return ranks;
}

// Positions within a node at which groups begin, for the given axes outside the group. Meshes have
// many more ranks than a node has devices.
std::vector<bool> FirstPlaces(const Mesh& mesh, const std::vector<AxisId>& outside,
                              int64_t devices) {
  std::vector<bool> places(static_cast<size_t>(devices));
  places[0] = true;
  for (AxisId axis : outside) {
    int64_t step = StrideOf(mesh, axis) % devices;
    std::vector<bool> next(places.size());
    // Strides repeat modulo the number of devices per node.
    for (int64_t i = 0; i < std::min(mesh[axis].size, devices); ++i) {
      for (int64_t place = 0; place < devices; ++place) {
        if (places[static_cast<size_t>(place)])
          next[static_cast<size_t>((place + i * step) % devices)] = true;
      }
    }
    places = std::move(next);
  }
  return places;
}

// The shape of a group with these increasing members, if the first one is at `place` of its node.
GroupShape ShapeFrom(int64_t place, const std::vector<int64_t>& members, int64_t devices) {
  GroupShape shape{static_cast<int64_t>(members.size()), 0, 0,
                   static_cast<int64_t>(members.size())};
  int64_t here = 0;
  int64_t last_node = -1;
  auto leave_node = [&] {
    if (here == 0) return;
    shape.most_per_node = std::max(shape.most_per_node, here);
    shape.fewest_per_node = std::min(shape.fewest_per_node, here);
  };
  for (int64_t member : members) {
    int64_t node = (place + member) / devices;
    if (node != last_node) {
      leave_node();
      here = 0;
      ++shape.nodes;
      last_node = node;
    }
    ++here;
  }
  leave_node();
  return shape;
}

// The same for `count` members with equal distances. Each period shifts the pattern by whole nodes,
// so three periods show all cases.
GroupShape ShapeOfRow(int64_t place, int64_t count, int64_t distance, int64_t devices) {
  int64_t period = devices / std::gcd(devices, distance);
  int64_t left_out = count > 4 * period ? (count - 3 * period) / period : 0;
  auto row = [&](int64_t n) {
    std::vector<int64_t> members;
    for (int64_t i = 0; i < n; ++i) members.push_back(i * distance);
    return ShapeFrom(place, members, devices);
  };
  GroupShape shape = row(count - left_out * period);
  if (left_out == 0) return shape;
  int64_t nodes_of_period = shape.nodes - row(count - (left_out + 1) * period).nodes;
  shape.ranks = count;
  shape.nodes += left_out * nodes_of_period;
  return shape;
}

}  // namespace

GroupShape ShapeOfGroups(const Mesh& mesh, const Axes& axes, int64_t devices_per_node) {
  std::vector<AxisId> inside;
  std::vector<AxisId> outside;
  for (size_t i = 0; i < mesh.axes().size(); ++i) {
    auto axis = static_cast<AxisId>(i);
    (axes.contains(axis) ? inside : outside).push_back(axis);
  }
  // Neighbouring axes form one row of equidistant ranks.
  bool is_row = !inside.empty() && inside.back() - inside.front() + 1u == inside.size();
  std::vector<int64_t> members;
  if (!is_row) members = Spread(mesh, inside);
  int64_t count = 1;
  for (AxisId axis : inside) count *= mesh[axis].size;
  GroupShape worst;
  worst.ranks = count;
  worst.fewest_per_node = count;
  std::vector<bool> places = FirstPlaces(mesh, outside, devices_per_node);
  for (int64_t place = 0; place < devices_per_node; ++place) {
    if (!places[static_cast<size_t>(place)]) continue;
    GroupShape shape =
        is_row ? ShapeOfRow(place, count, StrideOf(mesh, inside.back()), devices_per_node)
               : ShapeFrom(place, members, devices_per_node);
    worst.nodes = std::max(worst.nodes, shape.nodes);
    worst.most_per_node = std::max(worst.most_per_node, shape.most_per_node);
    worst.fewest_per_node = std::min(worst.fewest_per_node, shape.fewest_per_node);
  }
  return worst;
}

}  // namespace heddle::price
