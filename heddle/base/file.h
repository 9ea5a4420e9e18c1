// Whole files: read at once, written all or nothing. Directories.
//
// No std::filesystem here, nor anywhere in a program that links libtorch: builds of libtorch for CUDA export an old copy of it,
// which a linker may prefer.
#pragma once

#include <string>
#include <string_view>

#include "heddle/base/result.h"

namespace heddle {

Result<std::string> ReadFile(const std::string& path);

// Writes to a temporary file beside `path` and renames it: if this process dies, `path`
// holds the old content or the new, never a part. A `path` that is not a regular file (a pipe, /dev/stdout) is written directly.
Status WriteFile(const std::string& path, std::string_view content);

// The directory and those above it that are missing.
Status MakeDirectories(const std::string& path);

// A directory of its own below $TMPDIR or /tmp, gone with this object.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  // Empty if it could not be made.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace heddle
