// Decompression of gzip files.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "heddle/core/base/result.h"

namespace heddle {

// Whether `bytes` start with gzip's signature.
bool IsGzip(std::string_view bytes);
// The decompressed content of all members. Fails if it exceeds `most` bytes.
Result<std::string> Gunzip(std::string_view bytes, size_t most);

}  // namespace heddle
