// What a repro of Inductor says besides its graph: types and sizes of the arguments, and process groups.
#pragma once

#include "heddle/import/read/program.h"
#include "heddle/import/read/python_cursor.h"

namespace heddle {

// Inputs of the program get the types that `load_args` states. Nothing happens to a file that has none of it. False if
// something could not be read, which `cursor` has as its failure.
bool ReadReproArgs(std::string_view text, PythonCursor& cursor, ForeignProgram& program);

}  // namespace heddle
