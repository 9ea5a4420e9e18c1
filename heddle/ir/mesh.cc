#include "heddle/ir/mesh.h"

#include <map>

#include "heddle/base/text.h"

namespace heddle {

std::optional<AxisId> Mesh::Find(std::string_view name) const {
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == name) return static_cast<AxisId>(i);
  }
  return std::nullopt;
}

int64_t Mesh::Size(const Axes& axes) const {
  int64_t size = 1;
  for (AxisId axis : axes) size *= axes_[axis].size;
  return size;
}

int64_t Mesh::ranks() const {
  int64_t size = 1;
  for (const MeshAxis& axis : axes_) size *= axis.size;
  return size;
}

int64_t Mesh::Coordinate(int64_t rank, AxisId axis) const {
  for (size_t inner = axes_.size() - 1; inner > axis; --inner) rank /= axes_[inner].size;
  return rank % axes_[axis].size;
}

std::vector<std::vector<int64_t>> Groups(const Mesh& mesh, const Axes& axes) {
  std::vector<std::vector<int64_t>> groups;
  // By the rank's place outside `axes`: which group it is in.
  std::map<int64_t, size_t> group_of;
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    int64_t member = 0;
    for (AxisId axis : axes) member = member * mesh[axis].size + mesh.Coordinate(rank, axis);
    int64_t outside = 0;
    for (AxisId axis = 0; axis < mesh.axes().size(); ++axis) {
      if (!axes.contains(axis)) outside = outside * mesh[axis].size + mesh.Coordinate(rank, axis);
    }
    auto [found, added] = group_of.emplace(outside, groups.size());
    if (added) groups.emplace_back(mesh.Size(axes));
    groups[found->second][static_cast<size_t>(member)] = rank;
  }
  return groups;
}

std::string Format(const Mesh& mesh) {
  std::string out;
  for (const MeshAxis& axis : mesh.axes()) {
    if (!out.empty()) out += ", ";
    out += axis.name;
    out += '=';
    AppendInt(out, axis.size);
  }
  return out;
}

void AppendAxes(std::string& out, const Mesh& mesh, const Axes& axes) {
  for (size_t i = 0; i < axes.size(); ++i) {
    if (i != 0) out += ',';
    out += mesh[axes[i]].name;
  }
}

std::string Format(const Mesh& mesh, const Axes& axes) {
  std::string out;
  AppendAxes(out, mesh, axes);
  return out;
}

}  // namespace heddle
