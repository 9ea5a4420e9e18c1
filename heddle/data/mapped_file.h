// A file that can be read as memory.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/result.h"

namespace heddle {

class MappedFile {
 public:
  static Result<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::string_view bytes() const { return {data_, size_}; }
  // Fails if the file has become shorter: to read what is gone would end the process.
  Status CheckWhole() const;

 private:
  MappedFile() = default;

  std::string path_;
  int fd_ = -1;
  const char* data_ = nullptr;
  size_t size_ = 0;
};

// Every file below a folder, sorted by path; none whose name, or that of a folder on the way, begins with a dot. Links to folders are
// not followed. Fails for pipes and the like, and for links to nothing.
Result<std::vector<std::string>> FilesBelow(const std::string& folder);
// Whether a file is there.
bool IsFile(const std::string& path);

}  // namespace heddle
