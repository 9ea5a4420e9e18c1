// Lists the files of a folder.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/base/result.h"

namespace heddle::run {

// Returns every file below a folder, sorted by path. Skips names that begin with a dot, and does
// not follow links to folders. Fails for files that are not regular, such as pipes, and for broken
// links.
Result<std::vector<std::string>> FilesBelow(const std::string& folder);
// Whether the file exists.
bool IsFile(const std::string& path);

}  // namespace heddle::run
