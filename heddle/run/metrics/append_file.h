// AppendFile: appends records to a file, each in one write.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "heddle/core/base/result.h"

namespace heddle::run {

class AppendFile {
 public:
  // Opens a file for appending. `fresh` truncates it.
  static Result<std::unique_ptr<AppendFile>> Open(const std::string& path, bool fresh);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Writes without buffers, so that the record survives a crash of this process. If the record does
  // not fit on the disk, removes the written part, so that the next record can follow.
  Status Append(std::string_view record);

 private:
  AppendFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_;
};

}  // namespace heddle::run
