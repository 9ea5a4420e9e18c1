// Whole files, standard streams, and directories.
//
// Writes replace a file completely or not at all. This file and programs that link libtorch do not
// use std::filesystem: CUDA builds of libtorch export an old copy of it, which a linker may prefer.
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
  // -1 if the file cannot be opened. The caller closes it.
  int fd = -1;
  int64_t bytes = 0;
  // The reason: `No such file or directory`, `it is a FIFO, expected a regular file`.
  std::string problem;
};
InputFile OpenInput(const std::string& path, int more_flags = 0);

// Reads a whole file of at most kMaxFileBytes; a larger one fails before it is read. The string has
// a capacity of 64 bytes more than its size, for parsers that look ahead.
Result<std::string> ReadFile(const std::string& path);
Result<std::string> ReadStandardInput();
constexpr Bytes kMaxFileBytes = GiB(1);

// Writes a temporary file in the same directory and renames it, so a crash leaves either the old
// content or the new. Follows links, and keeps the mode of an existing file. Writes directly to a
// file that is not regular, such as a pipe or /dev/stdout.
Status WriteFile(const std::string& path, std::string_view content);
Status WriteStandardOutput(std::string_view content);

// Opens /dev/null for each closed standard stream, so that the next opened file does not get its
// number. Reads and writes of the stream still fail.
void OccupyStandardStreams();

// The absolute path, relative to the working directory. `.` and `..` remain.
std::string AbsolutePath(const std::string& path);
// Whether the path, after following links, is a directory.
bool IsDirectory(const std::string& path);
// Creates the directory and its missing parents.
Status MakeDirectories(const std::string& path);

// A new directory in $TMPDIR or /tmp, which the destructor removes.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  // Empty if the directory could not be created.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace heddle
