// Process groups as axes of a mesh.
#pragma once

#include <map>

#include "heddle/import/import.h"
#include "heddle/import/read/program.h"

namespace heddle {

class GroupAxes {
 public:
  // The groups that the file names and those that its collectives use. `remarks` gets what had to be assumed.
  static Result<GroupAxes> Make(const ForeignProgram& program, const ImportOptions& options,
                                std::vector<std::string>& remarks);

  const Mesh& mesh() const { return mesh_; }
  // None for a group that nothing is known of.
  const Axes* Find(std::string_view group) const;

 private:
  Status FromOptions(const ImportOptions& options);
  Status FromSizes(const ForeignProgram& program, std::vector<std::string>& remarks);

  Mesh mesh_;
  std::map<std::string, Axes, std::less<>> axes_;
};

// The name of a c10d collective without namespace and overload, as `all_reduce`; empty for any other op.
std::string_view CollectiveName(std::string_view target);

}  // namespace heddle
