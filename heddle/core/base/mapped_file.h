// A file that can be read as memory, whatever its size.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "heddle/core/base/result.h"

namespace heddle {

class MappedFile {
 public:
  // Fails unless `path` is a regular file.
  static Result<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  // Takes over an open regular file. `path` is for messages.
  static Result<std::shared_ptr<const MappedFile>> Take(int fd, std::string path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::string_view bytes() const { return {data_, size_}; }
  // Fails if the file has become shorter: reading the missing bytes would end the process.
  Status CheckWhole() const;

 private:
  MappedFile() = default;

  std::string path_;
  int fd_ = -1;
  const char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace heddle
