// Files that survive a crash: written through to the disk, read with the file's name in every complaint.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/hash.h"
#include "heddle/core/base/result.h"

namespace heddle::run {

// A diagnostic about a file, and one that came without it.
Failure FileError(Diag kind, const std::string& path, std::string_view what);
Failure InFile(const std::string& path, Failure failure);
// `cannot WHAT: No space left on device`, from errno.
Failure SystemError(Diag kind, const std::string& path, std::string_view what);

// A descriptor that is closed with this object.
class OpenFile {
 public:
  static Result<OpenFile> ForReading(const std::string& path);
  // Around the cache of the system.
  static Result<OpenFile> ToReadBack(const std::string& path);
  // Empties a file that is there. Around the cache, too.
  static Result<OpenFile> ForWriting(const std::string& path);
  OpenFile(OpenFile&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  ~OpenFile();
  int fd() const { return fd_; }
  // Some file systems say only here that a write failed.
  Status Close(const std::string& path) &&;

 private:
  explicit OpenFile(int fd) : fd_(fd) {}
  int fd_;
};

// All `size` bytes from `offset` on.
Status ReadAt(const std::string& path, int file, int64_t offset, void* data, int64_t size);

// Waits until the disk has the names in a folder.
Status SyncFolder(const std::string& path);

struct FileHash {
  int64_t bytes = 0;
  Hash128 hash;
  bool operator==(const FileHash&) const = default;
};
// Reads all of a file.
Result<FileHash> HashFile(const std::string& path);
// Writes the parts one behind the other into a new file, waits until the disk has all of it, and reads it back from there.
Result<FileHash> WriteDurably(const std::string& path, std::span<const std::string_view> parts);

// Calls `work` with 0 to `count` - 1, for several files side by side: one is hashed while the disk is busy with another. Complaints stand
// in this order.
Status ForEachFile(size_t count, const std::function<Status(size_t)>& work);

// The names in a folder, sorted; none if it is not there.
Result<std::vector<std::string>> NamesIn(const std::string& folder);
bool Exists(const std::string& path);
// A folder and what is in it. Well if it is not there.
Status RemoveTree(const std::string& path);

}  // namespace heddle::run
