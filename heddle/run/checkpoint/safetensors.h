// Files of tensors in the format of Hugging Face's safetensors: eight bytes with the length of a header, the header in JSON, and the
// tensors without gaps.
//
// A file is read with distrust: whatever its header says about sizes is checked against everything else before a byte of a tensor is
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
    // Bytes behind the header.
    int64_t begin = 0;
    int64_t end = 0;
  };

  // Reads and checks the header.
  static Result<SafetensorsFile> Open(const std::string& path);

  // In the order of their bytes.
  const std::vector<Entry>& entries() const { return entries_; }
  // Null if there is none of this name.
  const Entry* Find(const std::string& name) const;
  // Puts `size` bytes of the file at `to`, from byte `begin` behind the header on.
  Status ReadBytes(int64_t begin, int64_t size, void* to) const;
  const std::string& path() const { return path_; }
  // Where the first tensor begins.
  int64_t data_begin() const { return data_begin_; }

 private:
  std::string path_;
  // Closes the file with the last copy of this object.
  std::shared_ptr<const int> file_;
  int64_t data_begin_ = 0;
  std::vector<Entry> entries_;
  // Positions in entries_.
  std::unordered_map<std::string, size_t> by_name_;
};

// What a file with these tensors has before their bytes: the length and the header, with what else it says. Fails for element types that the format lacks,
// for names that are not UTF-8, and for two tensors of one name.
Result<std::string> FormatSafetensorsHeader(
    std::span<const TensorInfo> tensors, const std::map<std::string, std::string>& metadata = {});

}  // namespace heddle::run
