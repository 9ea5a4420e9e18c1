// Files that gzip has compressed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "heddle/core/base/result.h"

namespace heddle {

// Whether these bytes begin as gzip's do.
bool IsGzip(std::string_view bytes);
// What was compressed, if it has at most `most` bytes. All members of a file, one after the other.
Result<std::string> Gunzip(std::string_view bytes, size_t most);

}  // namespace heddle
