// Completes roles of inputs and outputs, phases of nodes and purposes of collectives, which files
// of other programs state partly or not at all.
#pragma once

#include "heddle/import/import.h"
#include "heddle/import/read/program.h"

namespace heddle {

// Adds a remark for each guess. Fails if ImportOptions::params names an unknown input or
// contradicts a signature.
Status SetRoles(const ForeignProgram& program, const ImportOptions& options, Imported& imported);

}  // namespace heddle
