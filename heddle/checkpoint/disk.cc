#include "heddle/checkpoint/disk.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

namespace heddle {
namespace {

// Small enough to stay in the cache between hashing and writing.
constexpr size_t kChunk = 1 << 20;

// Hashes and writes. Asks the disk to begin at once with what is written, so that little is left to wait for.
Status WriteChunks(const std::string& path, int fd, std::string_view content, Hasher128& hasher,
                   int64_t& offset) {
  while (!content.empty()) {
    std::string_view chunk = content.substr(0, kChunk);
    hasher.Add(chunk.data(), chunk.size());
    content.remove_prefix(chunk.size());
    while (!chunk.empty()) {
      ssize_t n = ::write(fd, chunk.data(), chunk.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return SystemError(Diag::kFileWrite, path, "write");
      ::sync_file_range(fd, offset, n, SYNC_FILE_RANGE_WRITE);
      chunk.remove_prefix(static_cast<size_t>(n));
      offset += n;
    }
  }
  return Done{};
}

}  // namespace

Failure FileError(Diag kind, const std::string& path, std::string_view what) {
  return InFile(path, Error(kind, "{}", what));
}

Failure InFile(const std::string& path, Failure failure) {
  for (Diagnostic& diagnostic : failure.diagnostics) {
    if (diagnostic.file.empty()) diagnostic.file = path;
  }
  return failure;
}

Failure SystemError(Diag kind, const std::string& path, std::string_view what) {
  return FileError(kind, path, fmt::format("cannot {}: {}", what, std::strerror(errno)));
}

Result<OpenFile> OpenFile::ForReading(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return SystemError(Diag::kFileRead, path, "open");
  return OpenFile(fd);
}

OpenFile::~OpenFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status ReadAt(const std::string& path, int file, int64_t offset, void* data, int64_t size) {
  auto* to = static_cast<char*>(data);
  while (size > 0) {
    ssize_t got = ::pread(file, to, static_cast<size_t>(size), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return SystemError(Diag::kFileRead, path, "read");
    if (got == 0)
      return FileError(Diag::kFileRead, path,
                       fmt::format("ends at byte {}, {} bytes too early", offset, size));
    to += got;
    offset += got;
    size -= got;
  }
  return Done{};
}

Result<Hash128> WriteDurably(const std::string& path, std::span<const std::string_view> parts) {
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return SystemError(Diag::kFileWrite, path, "create");
  Hasher128 hasher;
  int64_t offset = 0;
  Status written = Done{};
  for (std::string_view part : parts) {
    if (written.ok()) written = WriteChunks(path, fd, part, hasher, offset);
  }
  if (written.ok() && ::fsync(fd) != 0) written = SystemError(Diag::kFileWrite, path, "write");
  if (::close(fd) != 0 && written.ok()) written = SystemError(Diag::kFileWrite, path, "write");
  if (!written.ok()) return std::move(written).failure();
  return hasher.Get();
}

Status SyncFolder(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return SystemError(Diag::kFileWrite, path, "open");
  // Some file systems cannot do this, and need not.
  bool synced = ::fsync(fd) == 0 || errno == EINVAL;
  Status status = synced ? Status(Done{}) : SystemError(Diag::kFileWrite, path, "write");
  ::close(fd);
  return status;
}

Result<FileHash> HashFile(const std::string& path) {
  HEDDLE_TRY(OpenFile file, OpenFile::ForReading(path));
  ::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_SEQUENTIAL);
  auto buffer = std::make_unique_for_overwrite<char[]>(kChunk);
  Hasher128 hasher;
  FileHash result;
  for (;;) {
    ssize_t got = ::read(file.fd(), buffer.get(), kChunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return SystemError(Diag::kFileRead, path, "read");
    if (got == 0) break;
    hasher.Add(buffer.get(), static_cast<size_t>(got));
    result.bytes += got;
  }
  result.hash = hasher.Get();
  return result;
}

Result<std::vector<std::string>> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  DIR* open = ::opendir(folder.c_str());
  if (open == nullptr && errno == ENOENT) return names;
  if (open == nullptr) return SystemError(Diag::kFileRead, folder, "open");
  while (const dirent* entry = ::readdir(open)) {
    std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(open);
  std::ranges::sort(names);
  return names;
}

bool Exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

Status RemoveTree(const std::string& path) {
  if (!Exists(path)) return Done{};
  auto remove = [](const char* at, const struct stat*, int, FTW*) { return std::remove(at); };
  if (::nftw(path.c_str(), remove, 16, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT) return Done{};
  return SystemError(Diag::kFileWrite, path, "remove");
}

}  // namespace heddle
