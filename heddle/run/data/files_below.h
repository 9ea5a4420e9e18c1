// The files of a folder.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/base/result.h"

namespace heddle::run {

// Every file below a folder, sorted by path; none whose name, or that of a folder on the way,
// begins with a dot. Links to folders are not followed. Fails for pipes and the like, and for
// links to nothing.
Result<std::vector<std::string>> FilesBelow(const std::string& folder);
// Whether a file is there.
bool IsFile(const std::string& path);

}  // namespace heddle::run
