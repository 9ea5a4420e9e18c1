// The `--mesh` flag of all commands that have one.
#pragma once

#include "heddle/core/ir/mesh.h"

namespace heddle {

// Reads `dp=4,tp=2`, or the same in brackets. At least one axis.
Result<Mesh> ParseMeshFlag(std::string_view text);

}  // namespace heddle
