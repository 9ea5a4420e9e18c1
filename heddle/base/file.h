// Whole files: read at once, written all or nothing. Standard input and output. Directories.
//
// No std::filesystem here, nor anywhere in a program that links libtorch: builds of libtorch for CUDA export an old copy of it,
// which a linker may prefer.
#pragma once

#include <string>
#include <string_view>

#include "heddle/base/result.h"
#include "heddle/base/units.h"

namespace heddle {

// At most kMaxFileBytes: some files have no end. A regular file has 64 bytes of room behind its content, for readers that look ahead.
Result<std::string> ReadFile(const std::string& path);
// The same for files of a folder, which are not pipes: opening one would wait for a writer.
Result<std::string> ReadRegularFile(const std::string& path);
Result<std::string> ReadStandardInput();
constexpr Bytes kMaxFileBytes = GiB(1);

// Writes to a temporary file in the same directory and renames it: if this process dies, `path` holds the old content or the new,
// never a part. Links stay, and the file behind them keeps its mode. What is not a regular file (a pipe, /dev/stdout) is written
// directly.
Status WriteFile(const std::string& path, std::string_view content);
Status WriteStandardOutput(std::string_view content);

// If a standard stream is closed, the next file that is opened takes its number, and gets what was meant for the stream. This keeps the
// numbers taken; using the stream still fails.
void OccupyStandardStreams();

// The path from the root: a relative one begins in the working directory. `.` and `..` stay.
std::string AbsolutePath(const std::string& path);
// Whether there is one at the end of all links.
bool IsDirectory(const std::string& path);
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
