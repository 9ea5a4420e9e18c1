#include "heddle/ir/mesh.h"

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
