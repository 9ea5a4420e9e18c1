#include "heddle/run/checkpoint/lock.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "heddle/core/base/text.h"
#include "heddle/run/checkpoint/disk.h"

namespace heddle::run {

Result<FolderLock> FolderLock::Take(const std::string& folder) {
  std::string path = folder + "/lock";
  FolderLock lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (lock.fd_ < 0) return SystemError(Diag::kFileWrite, path, "open");
  char text[256] = {};
  if (::flock(lock.fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return SystemError(Diag::kFileWrite, path, "lock");
    ssize_t size = ::pread(lock.fd_, text, sizeof text - 1, 0);
    std::string_view holder = Trim({text, static_cast<size_t>(size < 0 ? 0 : size)});
    return FileError(
        Diag::kCheckpointLock, folder,
        fmt::format("another job writes its checkpoints here: {}; wait for it, or give another "
                    "folder",
                    holder.empty() ? std::string_view("an unknown process") : holder));
  }
  char host[128] = "an unknown host";
  ::gethostname(host, sizeof host - 1);
  std::string holder = fmt::format("process {} on {}\n", ::getpid(), host);
  // For the error message only: the lock is taken even if the disk is full.
  (void)!::ftruncate(lock.fd_, 0);
  (void)!::pwrite(lock.fd_, holder.data(), holder.size(), 0);
  return lock;
}

FolderLock& FolderLock::operator=(FolderLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace heddle::run
