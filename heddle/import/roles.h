// Roles of inputs and outputs, phases of nodes and purposes of collectives, which files of other programs state in part or not at all.
#pragma once

#include "heddle/import/import.h"
#include "heddle/import/read/program.h"

namespace heddle {

// Adds a remark for everything that was guessed. Fails for ImportOptions::params that name no input,
// or that contradict a signature.
Status SetRoles(const ForeignProgram& program, const ImportOptions& options, Imported& imported);

}  // namespace heddle
