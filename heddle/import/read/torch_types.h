// Types in the words of PyTorch.
#pragma once

#include <optional>
#include <string_view>

#include "heddle/core/ir/type.h"

namespace heddle {

// A type as FX prints it: `bf16[2, 4096]`, `f32[8][1]cuda:0`. None where a size is a symbol, or it is no tensor.
std::optional<Type> ParseFxType(std::string_view text);
// `torch.bfloat16`, or none.
std::optional<DType> ParseTorchDType(std::string_view word);

}  // namespace heddle
