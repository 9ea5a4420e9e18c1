#include "heddle/run/checkpoint/disk.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "heddle/core/base/file.h"

namespace heddle::run {
namespace {

constexpr size_t kChunk = 4 << 20;
// Direct I/O needs addresses, offsets and lengths that are multiples of the block size.
constexpr size_t kBlock = 4096;

struct FreeAligned {
  void operator()(char* data) const { ::operator delete[](data, std::align_val_t{kBlock}); }
};
using ChunkBuffer = std::unique_ptr<char[], FreeAligned>;

ChunkBuffer MakeChunkBuffer() {
  return ChunkBuffer(static_cast<char*>(::operator new[](kChunk, std::align_val_t{kBlock})));
}

// Opens a file for direct I/O where the file system supports it. Bypassing the page cache is faster
// for files that are not read soon. Writes must be whole chunks.
int CreateAroundCache(const std::string& path) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  int fd = ::open(path.c_str(), kFlags | O_DIRECT, 0666);
  return fd < 0 && errno == EINVAL ? ::open(path.c_str(), kFlags, 0666) : fd;
}

// Turns direct I/O off. Returns false if it is off already.
bool UseCache(int fd) {
  int flags = ::fcntl(fd, F_GETFL);
  return (flags & O_DIRECT) != 0 && ::fcntl(fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

// Whether a failed call is worth a retry. Some file systems report only now that they need larger
// blocks, or no direct I/O.
bool TryAgain(int fd) { return errno == EINTR || (errno == EINVAL && UseCache(fd)); }

// Collects bytes into chunks, hashes them and writes them.
class ChunkWriter {
 public:
  ChunkWriter(const std::string& path, int fd) : path_(path), fd_(fd) {}

  Status Add(std::string_view bytes) {
    while (!bytes.empty()) {
      size_t size = std::min(bytes.size(), kChunk - used_);
      std::memcpy(buffer_.get() + used_, bytes.data(), size);
      bytes.remove_prefix(size);
      used_ += size;
      if (used_ == kChunk) HEDDLE_RETURN_IF_ERROR(Flush());
    }
    return Done{};
  }

  Result<FileHash> Finish() {
    HEDDLE_RETURN_IF_ERROR(Flush());
    written_.hash = hasher_.Get();
    return written_;
  }

 private:
  Status Flush() {
    hasher_.Add(buffer_.get(), used_);
    std::string_view left(buffer_.get(), used_);
    while (!left.empty()) {
      // Only the end of a file is not a multiple of the block size.
      if (left.size() < kBlock) UseCache(fd_);
      size_t size = left.size() < kBlock ? left.size() : left.size() / kBlock * kBlock;
      ssize_t n = ::write(fd_, left.data(), size);
      if (n < 0 && TryAgain(fd_)) continue;
      if (n < 0) return SystemError(Diag::kFileWrite, path_, "write");
      left.remove_prefix(static_cast<size_t>(n));
    }
    written_.bytes += static_cast<int64_t>(used_);
    used_ = 0;
    return Done{};
  }

  const std::string& path_;
  int fd_;
  ChunkBuffer buffer_ = MakeChunkBuffer();
  size_t used_ = 0;
  Hasher128 hasher_;
  FileHash written_;
};

Result<FileHash> HashOpenFile(const std::string& path, int fd) {
  ChunkBuffer buffer = MakeChunkBuffer();
  Hasher128 hasher;
  FileHash result;
  for (;;) {
    ssize_t got = ::read(fd, buffer.get(), kChunk);
    if (got < 0 && TryAgain(fd)) continue;
    if (got < 0) return SystemError(Diag::kFileRead, path, "read");
    hasher.Add(buffer.get(), static_cast<size_t>(got));
    result.bytes += got;
    // Direct I/O cannot read past the end.
    if (static_cast<size_t>(got) % kBlock != 0) UseCache(fd);
    if (got == 0) break;
  }
  result.hash = hasher.Get();
  return result;
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
  InputFile file = OpenInput(path);
  if (file.fd >= 0) return OpenFile(file.fd);
  return FileError(Diag::kFileRead, path, fmt::format("cannot open: {}", file.problem));
}

Result<OpenFile> OpenFile::ToReadBack(const std::string& path) {
  // Reads from the disk instead of the page cache, where the file system supports it.
  InputFile file = OpenInput(path, O_DIRECT);
  return file.fd >= 0 ? Result<OpenFile>(OpenFile(file.fd)) : ForReading(path);
}

Result<OpenFile> OpenFile::ForWriting(const std::string& path) {
  int fd = CreateAroundCache(path);
  if (fd < 0) return SystemError(Diag::kFileWrite, path, "create");
  return OpenFile(fd);
}

OpenFile::~OpenFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status OpenFile::Close(const std::string& path) && {
  if (::close(std::exchange(fd_, -1)) != 0) return SystemError(Diag::kFileWrite, path, "write");
  return Done{};
}

Status ReadAt(const std::string& path, int file, int64_t offset, void* data, int64_t size) {
  auto* to = static_cast<char*>(data);
  while (size > 0) {
    ssize_t got = ::pread(file, to, static_cast<size_t>(size), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return SystemError(Diag::kFileRead, path, "read");
    if (got == 0)
      return FileError(Diag::kFileRead, path,
                       fmt::format("ends at byte {}, {} bytes before the end of the requested data",
                                   offset, size));
    to += got;
    offset += got;
    size -= got;
  }
  return Done{};
}

Status SyncFolder(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return SystemError(Diag::kFileWrite, path, "open");
  // Some file systems do not support fsync and do not need it.
  bool synced = ::fsync(fd) == 0 || errno == EINVAL;
  Status status = synced ? Status(Done{}) : SystemError(Diag::kFileWrite, path, "write");
  ::close(fd);
  return status;
}

Result<FileHash> HashFile(const std::string& path) {
  HEDDLE_TRY(OpenFile file, OpenFile::ForReading(path));
  ::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_SEQUENTIAL);
  return HashOpenFile(path, file.fd());
}

Result<FileHash> WriteDurably(const std::string& path, std::span<const std::string_view> parts) {
  HEDDLE_TRY(OpenFile file, OpenFile::ForWriting(path));
  ChunkWriter writer(path, file.fd());
  for (std::string_view part : parts) HEDDLE_RETURN_IF_ERROR(writer.Add(part));
  HEDDLE_TRY(FileHash meant, writer.Finish());
  if (::fsync(file.fd()) != 0) return SystemError(Diag::kFileWrite, path, "write");
  HEDDLE_RETURN_IF_ERROR(std::move(file).Close(path));
  HEDDLE_TRY(OpenFile again, OpenFile::ToReadBack(path));
  HEDDLE_TRY(FileHash found, HashOpenFile(path, again.fd()));
  if (found == meant) return meant;
  return FileError(
      Diag::kFileWrite, path,
      fmt::format("was written with {} bytes and hash {}, but reads back with {} and {}",
                  meant.bytes, Format(meant.hash), found.bytes, Format(found.hash)));
}

Status ForEachFile(size_t count, const std::function<Status(size_t)>& work) {
  std::vector<Diagnostics> problems(count);
  std::atomic<size_t> next{0};
  auto work_on = [&] {
    for (size_t i; (i = next.fetch_add(1)) < count;) problems[i] = work(i).diagnostics();
  };
  size_t cores = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> helpers;
  for (size_t i = 1; i < std::min<size_t>({cores, 8, count}); ++i) helpers.emplace_back(work_on);
  work_on();
  for (std::thread& helper : helpers) helper.join();
  Diagnostics all;
  for (Diagnostics& found : problems) all.insert(all.end(), found.begin(), found.end());
  if (all.empty()) return Done{};
  return Failure{std::move(all)};
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

}  // namespace heddle::run
