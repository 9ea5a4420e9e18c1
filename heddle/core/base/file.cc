#include "heddle/core/base/file.h"

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <ftw.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace heddle {
namespace {

constexpr int kMaxLinks = 40;
constexpr size_t kSpareBytes = 64;

Failure SystemError(Diag kind, std::string_view what, const std::string& path) {
  return Error(kind, "{} `{}`: {}", what, path, std::strerror(errno));
}

// Describes a file that is neither regular nor a directory.
std::string_view KindOf(mode_t mode) {
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// `name` is for the message.
Result<std::string> ReadAll(int fd, const std::string& name) {
  std::string content;
  struct stat info {};
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
    if (info.st_size > kMaxFileBytes.value)
      return Error(Diag::kFileRead, "{} has {}, the limit is {}", name, Format(Bytes{info.st_size}),
                   Format(kMaxFileBytes));
    content.reserve(static_cast<size_t>(info.st_size) + kSpareBytes);
  }
  char buffer[1 << 16];
  for (;;) {
    ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error(Diag::kFileRead, "cannot read {}: {}", name, std::strerror(errno));
    if (n == 0) return content;
    content.append(buffer, static_cast<size_t>(n));
    if (static_cast<int64_t>(content.size()) > kMaxFileBytes.value)
      return Error(Diag::kFileRead, "{} has more than {}", name, Format(kMaxFileBytes));
  }
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

bool WriteAndClose(int fd, std::string_view content) {
  bool written = WriteAll(fd, content);
  int error = errno;
  bool closed = ::close(fd) == 0;
  if (!written) errno = error;
  return written && closed;
}

std::string DirectoryOf(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }

// Returns the target of a link, whether or not it exists, or `path` itself. The kernel has already
// rejected chains of kMaxLinks links.
std::string FollowLinks(std::string path) {
  char target[PATH_MAX];
  for (int i = 0; i < kMaxLinks; ++i) {
    ssize_t length = ::readlink(path.c_str(), target, sizeof target);
    if (length < 0) break;
    std::string_view next(target, static_cast<size_t>(length));
    path = next.starts_with('/') ? std::string(next) : DirectoryOf(path).append(next);
  }
  return path;
}

// Creates a new file under an unused name and sets `path` to it. Returns the descriptor, or -1.
int MakeTemporary(const std::string& directory, std::string& path) {
  int fd = -1;
  errno = EEXIST;
  for (int i = 0; fd < 0 && errno == EEXIST; ++i) {
    path = fmt::format("{}.heddle-{}-{}", directory, ::getpid(), i);
    fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  }
  return fd;
}

// Replaces the file at `path` with a new one. `old` describes the existing file, or is null.
bool Replace(const std::string& path, const struct stat* old, std::string_view content) {
  if (old != nullptr && ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) return false;
  std::string temporary;
  int fd = MakeTemporary(DirectoryOf(path), temporary);
  if (fd < 0) return false;
  bool kept = true;
  if (old != nullptr) {
    // Only root may change the owner. Otherwise the new file belongs to the current user.
    (void)!::fchown(fd, old->st_uid, old->st_gid);
    kept = ::fchmod(fd, old->st_mode & 07777) == 0;
  }
  bool written = WriteAndClose(fd, content) && kept;
  if (written && std::rename(temporary.c_str(), path.c_str()) == 0) return true;
  int error = errno;
  ::unlink(temporary.c_str());
  errno = error;
  return false;
}

// Data can have thousands of files, which stay open: allows as many as the system does.
bool RaiseFileLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  bool more = limit.rlim_cur < limit.rlim_max;
  limit.rlim_cur = limit.rlim_max;
  return more && ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

}  // namespace

InputFile OpenInput(const std::string& path, int more_flags) {
  InputFile file;
  struct stat info {};
  auto refused = [&](int result) {
    if (result != 0) {
      file.problem = std::strerror(errno);
    } else if (S_ISDIR(info.st_mode)) {
      file.problem = std::strerror(EISDIR);
    } else if (!S_ISREG(info.st_mode)) {
      file.problem = fmt::format("it is {}, expected a regular file", KindOf(info.st_mode));
    }
    return !file.problem.empty();
  };
  // Opening a FIFO would disturb its writer, so check the kind first. The path may change before
  // the open, so open without blocking and check again.
  if (refused(::stat(path.c_str(), &info))) return file;
  auto open = [&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | more_flags); };
  file.fd = open();
  if (file.fd < 0 && errno == EMFILE && RaiseFileLimit()) file.fd = open();
  if (refused(file.fd < 0 ? -1 : ::fstat(file.fd, &info))) {
    if (file.fd >= 0) ::close(file.fd);
    file.fd = -1;
    return file;
  }
  file.bytes = info.st_size;
  return file;
}

Result<std::string> ReadFile(const std::string& path) {
  InputFile file = OpenInput(path);
  if (file.fd < 0) return Error(Diag::kFileRead, "cannot read `{}`: {}", path, file.problem);
  Result<std::string> content = ReadAll(file.fd, fmt::format("`{}`", path));
  ::close(file.fd);
  return content;
}

Result<std::string> ReadStandardInput() { return ReadAll(STDIN_FILENO, "standard input"); }

Status WriteFile(const std::string& path, std::string_view content) {
  struct stat info {};
  bool exists = ::stat(path.c_str(), &info) == 0;
  if (!exists && errno != ENOENT) return SystemError(Diag::kFileWrite, "cannot write", path);
  bool written = false;
  if (exists && !S_ISREG(info.st_mode)) {
    int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    written = fd >= 0 && WriteAndClose(fd, content);
  } else {
    written = Replace(FollowLinks(path), exists ? &info : nullptr, content);
  }
  if (written) return Done{};
  return SystemError(Diag::kFileWrite, "cannot write", path);
}

Status WriteStandardOutput(std::string_view content) {
  if (WriteAll(STDOUT_FILENO, content)) return Done{};
  return Error(Diag::kFileWrite, "cannot write to standard output: {}", std::strerror(errno));
}

void OccupyStandardStreams() {
  // Opened in the wrong direction, so that reads and writes still fail.
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) < 0)
      (void)!::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

std::string AbsolutePath(const std::string& path) {
  char folder[PATH_MAX];
  // Without a working directory there is no absolute path.
  if (path.starts_with('/') || ::getcwd(folder, sizeof folder) == nullptr) return path;
  std::string_view rest = path;
  while (rest.starts_with("./")) rest.remove_prefix(2);
  std::string absolute = folder;
  if (rest.empty() || rest == ".") return absolute;
  if (!absolute.ends_with('/')) absolute += '/';
  return absolute.append(rest);
}

bool IsDirectory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
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
