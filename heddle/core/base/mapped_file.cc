#include "heddle/core/base/mapped_file.h"

#include <cerrno>
#include <cstring>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "heddle/core/base/file.h"

namespace heddle {
namespace {

Failure CannotMap(const std::string& path, std::string_view why) {
  return Error(Diag::kFileRead, "cannot read `{}`: {}", path, why);
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  InputFile opened = OpenInput(path);
  if (opened.fd < 0) return CannotMap(path, opened.problem);
  return Take(opened.fd, path);
}

Result<std::shared_ptr<const MappedFile>> MappedFile::Take(int fd, std::string path) {
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->path_ = std::move(path);
  file->fd_ = fd;
  struct stat info {};
  if (::fstat(fd, &info) != 0) return CannotMap(file->path_, std::strerror(errno));
  file->size_ = static_cast<size_t>(info.st_size);
  if (file->size_ == 0) return std::shared_ptr<const MappedFile>(file);
  void* data = ::mmap(nullptr, file->size_, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return CannotMap(file->path_, std::strerror(errno));
  file->data_ = static_cast<const char*>(data);
  return std::shared_ptr<const MappedFile>(file);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
  if (fd_ >= 0) ::close(fd_);
}

Status MappedFile::CheckWhole() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return CannotMap(path_, std::strerror(errno));
  if (static_cast<size_t>(info.st_size) >= size_) return Done{};
  return Error(Diag::kData, "`{}` has {} bytes, and had {} when it was opened", path_, info.st_size,
               size_);
}

}  // namespace heddle
