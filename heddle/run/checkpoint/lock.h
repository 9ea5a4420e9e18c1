// The lock of a folder: one job at a time writes checkpoints there. It goes with its process, however that ends.
#pragma once

#include <string>

#include "heddle/core/base/result.h"

namespace heddle::run {

class FolderLock {
 public:
  // Fails with who has it. Not waited for.
  static Result<FolderLock> Take(const std::string& folder);
  FolderLock() = default;
  FolderLock(FolderLock&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  FolderLock& operator=(FolderLock&& other) noexcept;
  ~FolderLock();

 private:
  explicit FolderLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace heddle::run
