// The header of a safetensors file.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "heddle/run/checkpoint/safetensors.h"

namespace heddle::run {

// `F32`, and back; none for types that the format lacks.
std::optional<std::string_view> SafetensorsTypeName(DType dtype);
std::optional<DType> ParseSafetensorsType(std::string_view name);

// The tensors that a header lists, in the order of their bytes: every name once, every size that of its shape, all together the
// `data_bytes` behind the header, without gaps or overlaps.
Result<std::vector<SafetensorsFile::Entry>> ParseSafetensorsHeader(std::string_view header,
                                                                   int64_t data_bytes);

}  // namespace heddle::run
