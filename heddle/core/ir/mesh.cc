#include "heddle/core/ir/mesh.h"

#include <algorithm>
#include <map>

#include "heddle/core/base/text.h"
#include "heddle/core/ir/attrs.h"

namespace heddle {
namespace {

// Reads a mesh axis by axis, and stops at the first mistake.
class MeshParser {
 public:
  MeshParser(Scanner& scan, const SourceText& source) : scan_(scan), source_(source) {}

  Result<Mesh> Parse() {
    if (!scan_.Take('[')) return Expected("`[` and mesh axes, as in `[dp=4]`");
    if (scan_.Take(']')) return Mesh();
    do {
      HEDDLE_RETURN_IF_ERROR(ParseAxis());
    } while (scan_.Take(','));
    if (!scan_.Take(']')) return Expected("`,` or `]` after a mesh axis");
    return Mesh(std::move(axes_));
  }

 private:
  Failure At(size_t offset, size_t width, Diagnostic diagnostic) {
    return {{source_.At(std::move(diagnostic), offset, std::max<size_t>(width, 1))}};
  }
  Failure Expected(std::string_view what) {
    scan_.SkipSpace();
    return At(scan_.offset(), 1, MakeDiagnostic(Diag::kSyntax, "expected {}", what));
  }

  Status ParseAxis() {
    scan_.SkipSpace();
    size_t begin = scan_.offset();
    std::string name(scan_.TakeRawRun(CharClass::kWord));
    if (name.empty()) return Expected("a mesh axis, as in `dp=4`");
    Status usable = CheckAxisName(name);
    if (!usable.ok()) return At(begin, name.size(), usable.diagnostics()[0]);
    if (!scan_.Take('=')) return Expected("`=` and the size of a mesh axis");
    std::optional<int64_t> size = scan_.TakeInt();
    if (!size) return Expected("the size of a mesh axis");
    if (*size < 1 || *size > Mesh::kMaxRanks || (ranks_ *= *size) > Mesh::kMaxRanks) {
      return At(begin, scan_.offset() - begin,
                MakeDiagnostic(Diag::kMeshSize,
                               "mesh axis `{}` has size {}; a mesh has 1 to {} ranks in all", name,
                               *size, Mesh::kMaxRanks));
    }
    bool twice =
        std::ranges::any_of(axes_, [&](const MeshAxis& axis) { return axis.name == name; });
    if (twice)
      return At(begin, name.size(),
                MakeDiagnostic(Diag::kAxisTwice, "mesh axis `{}` is defined twice", name));
    if (axes_.size() == Mesh::kMaxAxes)
      return At(begin, name.size(),
                MakeDiagnostic(Diag::kMeshSize, "a mesh has at most {} axes", Mesh::kMaxAxes));
    AxisRole role = UsualRole(name);
    HEDDLE_RETURN_IF_ERROR(ParseRole(role));
    axes_.emplace_back(std::move(name), *size, role);
    return Done{};
  }
  // Replaces `role` if a role is written.
  Status ParseRole(AxisRole& role) {
    scan_.SkipSpace();
    size_t begin = scan_.offset();
    std::string_view word = scan_.TakeRawRun(CharClass::kWord);
    if (word.empty()) return Done{};
    std::optional<AxisRole> written = ParseAxisRole(word);
    if (!written)
      return At(begin, word.size(),
                MakeDiagnostic(Diag::kSyntax,
                               "`{}` is not the role of a mesh axis; roles are none, replicate, "
                               "shard, tensor, expert, context, pipeline and headtail",
                               word));
    role = *written;
    return Done{};
  }

  Scanner& scan_;
  const SourceText& source_;
  std::vector<MeshAxis> axes_;
  int64_t ranks_ = 1;
};

}  // namespace

std::string_view Name(View view) { return view == View::kGlobal ? "global" : "local"; }

Status CheckAxisName(std::string_view name) {
  bool word = !name.empty() && Scanner(name).TakeRawRun(CharClass::kWord) == name;
  if (!word || (name[0] >= '0' && name[0] <= '9'))
    return Error(Diag::kReservedName,
                 "`{}` cannot name a mesh axis; a name is letters, digits and _, a letter first",
                 name);
  if (IsReservedWord(name))
    return Error(Diag::kReservedName, "`{}` is a word of the format and cannot name a mesh axis",
                 name);
  return Done{};
}

Result<Mesh> ParseMesh(Scanner& scan, const SourceText& source) {
  return MeshParser(scan, source).Parse();
}

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
  // Keyed by the rank's coordinates outside `axes`: the index of its group.
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
    if (axis.role != UsualRole(axis.name)) {
      out += ' ';
      out += Name(axis.role);
    }
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
