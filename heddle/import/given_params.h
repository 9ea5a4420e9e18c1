// Parameters that the user names, for files that do not state roles: `--params=params_*,0-3`.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "heddle/import/import.h"
#include "heddle/import/read/program.h"

namespace heddle {

// Indexed by input of the graph: whether it is a parameter. Empty if ImportOptions::params is.
// Fails for a name or number that no input has, and for a file whose signature states its
// parameters.
Result<std::vector<bool>> FindGivenParams(const ForeignProgram& program, const Imported& imported,
                                          std::span<const std::string> given);

}  // namespace heddle
