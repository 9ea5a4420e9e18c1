// Whole files: read at once, written all or nothing.
#pragma once

#include <string>
#include <string_view>

#include "heddle/base/result.h"

namespace heddle {

Result<std::string> ReadFile(const std::string& path);

// Writes to a temporary file beside `path` and renames it: if this process dies, `path`
// holds the old content or the new, never a part. A `path` that is not a regular file (a pipe, /dev/stdout) is written directly.
Status WriteFile(const std::string& path, std::string_view content);

}  // namespace heddle
