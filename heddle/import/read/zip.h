// ZipArchive: the entries of a zip file in memory. Decompresses entries only on request.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/result.h"

namespace heddle {

bool IsZip(std::string_view bytes);

class ZipArchive {
 public:
  struct Entry {
    std::string_view name;
    uint64_t packed = 0;
    uint64_t size = 0;
    // Offset of its local header.
    uint64_t offset = 0;
    uint32_t checksum = 0;
    uint16_t method = 0;
  };

  // `bytes` must outlive the archive.
  static Result<ZipArchive> Open(std::string_view bytes, const std::string& file);

  const std::vector<Entry>& entries() const { return entries_; }
  Result<std::string> Read(const Entry& entry) const;

 private:
  template <typename... Args>
  Failure Fail(fmt::format_string<Args...> format, Args&&... args) const {
    Failure failure = Error(Diag::kFileRead, format, std::forward<Args>(args)...);
    failure.diagnostics[0].file = file_;
    return failure;
  }
  Status ReadDirectory();

  std::string file_;
  std::string_view bytes_;
  std::vector<Entry> entries_;
};

}  // namespace heddle
