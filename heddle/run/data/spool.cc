#include "heddle/run/data/spool.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace heddle::run {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

Failure CannotSpool(const std::string& folder) {
  return Error(Diag::kFileWrite,
               "cannot write temporary data in `{}`: {}; TMPDIR names another folder", folder,
               std::strerror(errno));
}

}  // namespace

Result<Spool> Spool::Create() {
  const char* given = std::getenv("TMPDIR");
  // Many systems keep /tmp in memory.
  std::string folder = given != nullptr && *given != '\0' ? given : "/var/tmp";
  std::string path = folder + "/heddle-XXXXXX";
  int fd = ::mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) return CannotSpool(folder);
  ::unlink(path.c_str());
  return Spool(fd, std::move(folder));
}

Spool::Spool(Spool&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      folder_(std::move(other.folder_)),
      buffer_(std::move(other.buffer_)) {}

Spool::~Spool() {
  if (fd_ >= 0) ::close(fd_);
}

Status Spool::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return CannotSpool(folder_);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return Done{};
}

Status Spool::Append(std::string_view bytes) {
  buffer_ += bytes;
  if (buffer_.size() < kBufferBytes) return Done{};
  HEDDLE_RETURN_IF_ERROR(Write(buffer_));
  buffer_.clear();
  return Done{};
}

Result<std::shared_ptr<const MappedFile>> Spool::Map() && {
  HEDDLE_RETURN_IF_ERROR(Write(buffer_));
  return MappedFile::Take(std::exchange(fd_, -1), "temporary data in " + folder_);
}

}  // namespace heddle::run
