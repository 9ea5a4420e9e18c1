// Files that survive a crash: writes wait for the disk, and every error names its file.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/hash.h"
#include "heddle/core/base/result.h"

namespace heddle::run {

// Makes a diagnostic about a file; adds the file to a diagnostic that names none.
Failure FileError(Diag kind, const std::string& path, std::string_view what);
Failure InFile(const std::string& path, Failure failure);
// Makes `cannot WHAT: No space left on device` from errno.
Failure SystemError(Diag kind, const std::string& path, std::string_view what);

// A file descriptor, closed by the destructor.
class OpenFile {
 public:
  static Result<OpenFile> ForReading(const std::string& path);
  // Opens for reading, bypassing the page cache.
  static Result<OpenFile> ToReadBack(const std::string& path);
  // Creates or truncates a file for writing, bypassing the page cache.
  static Result<OpenFile> ForWriting(const std::string& path);
  OpenFile(OpenFile&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  ~OpenFile();
  int fd() const { return fd_; }
  // Closes the file. Some file systems report a failed write only here.
  Status Close(const std::string& path) &&;

 private:
  explicit OpenFile(int fd) : fd_(fd) {}
  int fd_;
};

// Reads `size` bytes at `offset`. Fails if the file is shorter.
Status ReadAt(const std::string& path, int file, int64_t offset, void* data, int64_t size);

// Waits until the names in a folder are on the disk.
Status SyncFolder(const std::string& path);

struct FileHash {
  int64_t bytes = 0;
  Hash128 hash;
  bool operator==(const FileHash&) const = default;
};
// Reads and hashes a whole file.
Result<FileHash> HashFile(const std::string& path);
// Writes the parts one after the other into a new file, waits until the disk has all of it, and
// reads it back from there.
Result<FileHash> WriteDurably(const std::string& path, std::span<const std::string_view> parts);

// Calls `work` with 0 to `count` - 1 for several files in parallel: one is hashed while the disk is
// busy with another. Errors are in the order of the indices.
Status ForEachFile(size_t count, const std::function<Status(size_t)>& work);

// The names in a folder, sorted; none if it is not there.
Result<std::vector<std::string>> NamesIn(const std::string& folder);
bool Exists(const std::string& path);
// Removes a folder and its contents. Succeeds if it is missing.
Status RemoveTree(const std::string& path);

}  // namespace heddle::run
