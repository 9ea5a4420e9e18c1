// FxReader: graphs that PyTorch prints as Python: `print_readable` of an FX graph, and the "repro" files of Inductor.
//
// A file has a class with a method `forward`, one statement for each node, which ends in `return`. A repro also has
// `load_args(reader)` with types and sizes of the arguments, and names its process groups. Of several classes `Repro` is read, or
// else the first.
#pragma once

#include "heddle/base/result.h"
#include "heddle/import/read/program.h"

namespace heddle {

// `text` outlives the program.
Result<ForeignProgram> ReadFx(std::string_view text, const std::string& file);

// A type as FX prints it: `bf16[2, 4096]`, `f32[8][1]cuda:0`. None where a size is a symbol, or it is no tensor.
std::optional<Type> ParseFxType(std::string_view text);
// `torch.bfloat16`, or none.
std::optional<DType> ParseTorchDType(std::string_view word);

}  // namespace heddle
