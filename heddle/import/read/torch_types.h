// PyTorch's notations for types.
#pragma once

#include <optional>
#include <string_view>

#include "heddle/core/ir/type.h"

namespace heddle {

// A type as FX prints it: `bf16[2, 4096]`, `f32[8][1]cuda:0`. Nullopt if a size is a symbol, or if
// it is not a tensor type.
std::optional<Type> ParseFxType(std::string_view text);
// `torch.bfloat16`; nullopt for other words.
std::optional<DType> ParseTorchDType(std::string_view word);

}  // namespace heddle
