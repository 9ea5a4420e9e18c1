#include "heddle/core/ir/mesh_flag.h"

#include "heddle/core/base/text.h"

namespace heddle {

Result<Mesh> ParseMeshFlag(std::string_view text) {
  std::string_view trimmed = Trim(text);
  std::string list = trimmed.starts_with('[') ? std::string(trimmed) : fmt::format("[{}]", trimmed);
  SourceText source("--mesh", list);
  Scanner scan(list);
  HEDDLE_TRY(Mesh mesh, ParseMesh(scan, source));
  if (mesh.empty() || !scan.AtEnd())
    return Error(Diag::kMeshSize, "--mesh is `{}`; write axes and sizes, as in dp=32,tp=8", text);
  return mesh;
}

}  // namespace heddle
