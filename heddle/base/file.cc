#include "heddle/base/file.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

namespace heddle {
namespace {

Failure SystemError(Diag kind, std::string_view what, const std::string& path) {
  return Error(kind, "{} `{}`: {}", what, path, std::strerror(errno));
}

bool WriteAll(int fd, std::string_view content) {
  while (!content.empty()) {
    ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    content.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace

Result<std::string> ReadFile(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return SystemError(Diag::kFileRead, "cannot read", path);
  std::string content;
  struct stat info {};
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
    content.reserve(static_cast<size_t>(info.st_size) + 1);
  char buffer[1 << 16];
  for (;;) {
    ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      Failure failure = SystemError(Diag::kFileRead, "cannot read", path);
      ::close(fd);
      return failure;
    }
    if (n == 0) break;
    content.append(buffer, static_cast<size_t>(n));
  }
  ::close(fd);
  return content;
}

Status WriteFile(const std::string& path, std::string_view content) {
  struct stat info {};
  bool in_place = ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
  std::string target = in_place ? path : path + ".tmp" + std::to_string(::getpid());
  int fd = ::open(target.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (in_place ? 0 : O_TRUNC), 0666);
  if (fd < 0) return SystemError(Diag::kFileWrite, "cannot write", path);
  bool written = WriteAll(fd, content);
  written = ::close(fd) == 0 && written;
  if (written && (in_place || std::rename(target.c_str(), path.c_str()) == 0)) return Done{};
  Failure failure = SystemError(Diag::kFileWrite, "cannot write", path);
  if (!in_place) ::unlink(target.c_str());
  return failure;
}

Status MakeDirectories(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    std::string part = path.substr(0, slash);
    if (::mkdir(part.c_str(), 0777) != 0 && errno != EEXIST)
      return SystemError(Diag::kFileWrite, "cannot make directory", path);
    if (slash == std::string::npos) break;
  }
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return Done{};
  errno = ENOTDIR;
  return SystemError(Diag::kFileWrite, "cannot make directory", path);
}

TempDir::TempDir() {
  const char* parent = std::getenv("TMPDIR");
  std::string pattern =
      fmt::format("{}/heddle-XXXXXX", parent != nullptr && *parent != '\0' ? parent : "/tmp");
  if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
}

TempDir::~TempDir() {
  if (path_.empty()) return;
  auto remove = [](const char* path, const struct stat*, int, FTW*) { return std::remove(path); };
  ::nftw(path_.c_str(), remove, 16, FTW_DEPTH | FTW_PHYS);
}

}  // namespace heddle
