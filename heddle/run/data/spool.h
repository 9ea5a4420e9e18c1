// Spool: data of any size that is written once and then read as memory.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "heddle/core/base/mapped_file.h"

namespace heddle::run {

// Stores the data in a file without a name in $TMPDIR or /var/tmp. The system frees it when the
// last user ends.
class Spool {
 public:
  static Result<Spool> Create();
  Spool(Spool&& other) noexcept;
  ~Spool();

  Status Append(std::string_view bytes);
  // Ends the writing.
  Result<std::shared_ptr<const MappedFile>> Map() &&;

 private:
  Spool(int fd, std::string folder) : fd_(fd), folder_(std::move(folder)) {}
  Status Write(std::string_view bytes);

  int fd_;
  // For messages.
  std::string folder_;
  std::string buffer_;
};

}  // namespace heddle::run
