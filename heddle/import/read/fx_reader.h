// FxReader: graphs that PyTorch prints as Python, such as `print_readable` of an FX graph and
// Inductor's repro files.
//
// A file has a class with a method `forward`, with one statement per node and a final `return`. A
// repro also has `load_args(reader)` with the types and sizes of the arguments, and declares its
// process groups. If a file has several classes, the reader uses `Repro`, or else the first.
#pragma once

#include "heddle/core/base/result.h"
#include "heddle/import/read/program.h"

namespace heddle {

// `text` must outlive the program.
Result<ForeignProgram> ReadFx(std::string_view text, const std::string& file);

}  // namespace heddle
