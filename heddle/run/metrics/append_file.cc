#include "heddle/run/metrics/append_file.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace heddle::run {
namespace {

Failure CannotWrite(const std::string& path) {
  return Error(Diag::kFileWrite, "cannot write `{}`: {}", path, std::strerror(errno));
}

}  // namespace

Result<std::unique_ptr<AppendFile>> AppendFile::Open(const std::string& path, bool fresh) {
  int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (fresh ? O_TRUNC : 0);
  int fd = ::open(path.c_str(), flags, 0666);
  if (fd < 0) return CannotWrite(path);
  return std::unique_ptr<AppendFile>(new AppendFile(path, fd));
}

AppendFile::~AppendFile() { ::close(fd_); }

Status AppendFile::Append(std::string_view record) {
  // Pipes cannot seek, so a partial record remains there.
  off_t end = ::lseek(fd_, 0, SEEK_END);
  while (!record.empty()) {
    ssize_t n = ::write(fd_, record.data(), record.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      Failure failure = CannotWrite(path_);
      if (end >= 0) (void)!::ftruncate(fd_, end);
      return failure;
    }
    record.remove_prefix(static_cast<size_t>(n));
  }
  return Done{};
}

}  // namespace heddle::run
