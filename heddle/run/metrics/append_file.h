// A file that records are added to, each whole and at once.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "heddle/core/base/result.h"

namespace heddle::run {

class AppendFile {
 public:
  // Adds to what is there. `fresh` begins with nothing.
  static Result<std::unique_ptr<AppendFile>> Open(const std::string& path, bool fresh);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Without buffers, so that a record outlives this process. Of a record that does not fit on the disk nothing stays, so that the next
  // may follow it.
  Status Append(std::string_view record);

 private:
  AppendFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_;
};

}  // namespace heddle::run
