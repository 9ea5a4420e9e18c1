// FxReader: graphs that PyTorch prints as Python: `print_readable` of an FX graph, and the "repro" files of Inductor.
//
// A file has a class with a method `forward`, one statement for each node, which ends in `return`. A repro also has
// `load_args(reader)` with types and sizes of the arguments, and names its process groups. Of several classes `Repro` is read, or
// else the first.
#pragma once

#include "heddle/core/base/result.h"
#include "heddle/import/read/program.h"

namespace heddle {

// `text` outlives the program.
Result<ForeignProgram> ReadFx(std::string_view text, const std::string& file);

}  // namespace heddle
