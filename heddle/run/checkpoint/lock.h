// The lock of a folder: only one job at a time writes checkpoints there. The lock ends with the
// process.
#pragma once

#include <string>

#include "heddle/core/base/result.h"

namespace heddle::run {

class FolderLock {
 public:
  // Takes the lock. Fails immediately if another job has it; the error names that job.
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
