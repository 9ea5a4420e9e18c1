// Maps process groups to axes of a mesh.
#pragma once

#include <map>

#include "heddle/import/import.h"
#include "heddle/import/read/program.h"

namespace heddle {

class GroupAxes {
 public:
  // Maps the groups that the file declares and those that its collectives use. Appends assumptions
  // to `remarks`.
  static Result<GroupAxes> Make(const ForeignProgram& program, const ImportOptions& options,
                                std::vector<std::string>& remarks);

  const Mesh& mesh() const { return mesh_; }
  // Null for an unknown group.
  const Axes* Find(std::string_view group) const;

 private:
  Status FromOptions(const ImportOptions& options);
  Status FromSizes(const ForeignProgram& program, std::vector<std::string>& remarks);

  Mesh mesh_;
  std::map<std::string, Axes, std::less<>> axes_;
};

// The name of a c10d collective without namespace and overload, such as `all_reduce`; empty for any
// other op.
std::string_view CollectiveName(std::string_view target);

}  // namespace heddle
