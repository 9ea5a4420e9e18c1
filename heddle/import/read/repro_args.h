// What a repro of Inductor says besides its graph: types and sizes of the arguments, and process groups.
#pragma once

#include "heddle/base/result.h"
#include "heddle/import/read/program.h"
#include "heddle/import/read/python_cursor.h"

namespace heddle {

// Inputs of the program get the types that `load_args` states. Nothing happens to a file that has none of it.
Status ReadReproArgs(std::string_view text, PythonCursor& cursor, ForeignProgram& program);

}  // namespace heddle
