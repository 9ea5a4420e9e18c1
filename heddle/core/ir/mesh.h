// The device mesh: named axes with sizes, and ordered lists of axes.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/base/scanner.h"
#include "heddle/core/ir/axis_role.h"

namespace heddle {

// The position of an axis in its mesh.
using AxisId = uint8_t;

// An ordered list of distinct mesh axes, the slowest first: `[dp,tp]` and `[tp,dp]` differ. Eight
// bytes, passed by value.
class Axes {
 public:
  static constexpr size_t kMax = 7;

  constexpr Axes() = default;
  constexpr explicit Axes(AxisId axis) : count_(1) { ids_[0] = axis; }

  constexpr size_t size() const { return count_; }
  constexpr bool empty() const { return count_ == 0; }
  constexpr AxisId operator[](size_t i) const { return ids_[i]; }
  constexpr const AxisId* begin() const { return ids_.data(); }
  constexpr const AxisId* end() const { return ids_.data() + count_; }
  constexpr bool contains(AxisId axis) const {
    for (AxisId id : *this) {
      if (id == axis) return true;
    }
    return false;
  }
  // Returns false if the list is full or already contains `axis`.
  constexpr bool Add(AxisId axis) {
    if (count_ == kMax || contains(axis)) return false;
    ids_[count_++] = axis;
    return true;
  }
  constexpr auto operator<=>(const Axes&) const = default;
  // All eight bytes as one number, for hashing.
  uint64_t bits() const {
    uint64_t word = count_;
    for (AxisId id : ids_) word = word << 8 | id;
    return word;
  }

 private:
  uint8_t count_ = 0;
  std::array<AxisId, kMax> ids_{};
};

// Whether the types of a module are those of the whole mesh, with placements, or those of one rank.
enum class View : uint8_t { kGlobal, kLocal };
std::string_view Name(View view);

// A mesh axis: name, number of ranks, and role.
struct MeshAxis {
  // The role follows from the name.
  MeshAxis(const std::string& name, int64_t size) : MeshAxis(name, size, UsualRole(name)) {}
  MeshAxis(std::string name, int64_t size, AxisRole role)
      : name(std::move(name)), size(size), role(role) {}

  std::string name;
  int64_t size;
  AxisRole role;
  bool operator==(const MeshAxis&) const = default;
};

// Named axes, the slowest first. A mesh without axes is a single device.
class Mesh {
 public:
  static constexpr size_t kMaxAxes = Axes::kMax;
  // Enough for any cluster, and so small that products of axis sizes never overflow.
  static constexpr int64_t kMaxRanks = int64_t{1} << 31;

  Mesh() = default;
  explicit Mesh(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {}

  const std::vector<MeshAxis>& axes() const { return axes_; }
  bool empty() const { return axes_.empty(); }
  const MeshAxis& operator[](AxisId id) const { return axes_[id]; }
  std::optional<AxisId> Find(std::string_view name) const;
  // The number of ranks along `axes`, and in total.
  int64_t Size(const Axes& axes) const;
  int64_t ranks() const;
  // The coordinate of `rank` along an axis. The first axis is the slowest in the order of ranks.
  int64_t Coordinate(int64_t rank, AxisId axis) const;
  bool operator==(const Mesh&) const = default;

 private:
  std::vector<MeshAxis> axes_;
};

// Checks a name for an axis: a word that does not begin with a digit and is not reserved.
Status CheckAxisName(std::string_view name);

// The groups of a collective over `axes`: ranks that differ only along these axes, in the order of
// `axes`. Groups are sorted by their first ranks.
std::vector<std::vector<int64_t>> Groups(const Mesh& mesh, const Axes& axes);

// `dp=4, rows=2 tensor`: a role is printed if the name does not imply it.
std::string Format(const Mesh& mesh);
// Parses `[dp=4, rows=2 tensor]`; `[]` is a mesh without axes. `source` is the scanner's text.
Result<Mesh> ParseMesh(Scanner& scan, const SourceText& source);
// `dp,tp`
void AppendAxes(std::string& out, const Mesh& mesh, const Axes& axes);
std::string Format(const Mesh& mesh, const Axes& axes);

}  // namespace heddle
