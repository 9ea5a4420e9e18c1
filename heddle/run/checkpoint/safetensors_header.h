// The header of a safetensors file.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "heddle/run/checkpoint/safetensors.h"

namespace heddle::run {

// Converts element types to and from names such as `F32`; nullopt for types that the format lacks.
std::optional<std::string_view> SafetensorsTypeName(DType dtype);
std::optional<DType> ParseSafetensorsType(std::string_view name);

// Returns the tensors that a header lists, in the order of their bytes. Names must be unique, sizes
// must match shapes, and the tensors must fill `data_bytes` without gaps or overlaps.
Result<std::vector<SafetensorsFile::Entry>> ParseSafetensorsHeader(std::string_view header,
                                                                   int64_t data_bytes);

}  // namespace heddle::run
