// Further contents of Inductor's repros: types and sizes of the arguments, and process groups.
#pragma once

#include "heddle/import/read/program.h"
#include "heddle/import/read/python_cursor.h"

namespace heddle {

// Sets the types of the program's inputs to those of `load_args`. Does nothing for a file without
// it. Returns false on a syntax error, which `cursor` stores as its failure.
bool ReadReproArgs(std::string_view text, PythonCursor& cursor, ForeignProgram& program);

}  // namespace heddle
