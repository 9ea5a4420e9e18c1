// Whole files: read at once, written all or nothing. Standard input and output. Directories.
//
// No std::filesystem here, nor anywhere in a program that links libtorch: builds of libtorch for CUDA export an old copy of it,
// which a linker may prefer.
#pragma once

#include <string>
#include <string_view>

#include "heddle/core/base/result.h"
#include "heddle/core/base/units.h"

namespace heddle {

// Opens a file that a user named, for reading. Only regular files open: opening or reading a FIFO,
// a device or a socket can wait forever. `more_flags` are flags of open(2).
//
//   InputFile file = OpenInput(path);
//   if (file.fd < 0) return Error(Diag::kFileRead, "cannot read `{}`: {}", path, file.problem);
struct InputFile {
  // -1 if the file does not open. The caller closes it.
  int fd = -1;
  int64_t bytes = 0;
  // Why it does not open: `No such file or directory`, `it is a FIFO, expected a regular file`.
  std::string problem;
};
InputFile OpenInput(const std::string& path, int more_flags = 0);

// Reads a whole file of at most kMaxFileBytes; a larger one fails before it is read. The string has
// a capacity of 64 bytes more than its size, for parsers that look ahead.
Result<std::string> ReadFile(const std::string& path);
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
