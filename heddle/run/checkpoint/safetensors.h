// Files in the format of Hugging Face's safetensors: the length of the header in eight bytes, the
// header in JSON, and the tensors without gaps.
//
// Nothing in a file is trusted: all sizes in its header are checked before a byte of a tensor is
// read.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/run/checkpoint/piece.h"

namespace heddle::run {

class SafetensorsFile {
 public:
  struct Entry {
    std::string name;
    DType dtype = DType::kF32;
    Sizes shape;
    // Bytes after the header.
    int64_t begin = 0;
    int64_t end = 0;
  };

  // Opens a file and checks its header.
  static Result<SafetensorsFile> Open(const std::string& path);

  // In the order of their bytes.
  const std::vector<Entry>& entries() const { return entries_; }
  // Null if there is no tensor of this name.
  const Entry* Find(const std::string& name) const;
  // Reads `size` bytes to `to`, from byte `begin` after the header on.
  Status ReadBytes(int64_t begin, int64_t size, void* to) const;
  const std::string& path() const { return path_; }
  // Byte at which the first tensor begins.
  int64_t data_begin() const { return data_begin_; }

 private:
  std::string path_;
  // Shared by copies of this object; the last one closes the file.
  std::shared_ptr<const int> file_;
  int64_t data_begin_ = 0;
  std::vector<Entry> entries_;
  // Positions in entries_.
  std::unordered_map<std::string, size_t> by_name_;
};

// Returns everything before the bytes of the tensors: the length and the header with `metadata`.
// Fails for element types that the format lacks, names that are not UTF-8, and duplicate names.
Result<std::string> FormatSafetensorsHeader(
    std::span<const TensorInfo> tensors, const std::map<std::string, std::string>& metadata = {});

}  // namespace heddle::run
