// Files of tensors in the format of Hugging Face's safetensors: eight bytes with the length of a header, the header in JSON, and the
// tensors without gaps.
//
// A file is read with distrust: whatever its header says about sizes is checked against everything else before a byte of a tensor is
// read.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/base/result.h"
#include "heddle/models/model.h"
#include "heddle/train/session.h"

namespace heddle {

class SafetensorsFile {
 public:
  struct Entry {
    std::string name;
    at::ScalarType type = at::kFloat;
    std::vector<int64_t> shape;
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
  Result<at::Tensor> Read(const Entry& entry) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  // Closes the file with the last copy of this object.
  std::shared_ptr<const int> file_;
  int64_t data_begin_ = 0;
  std::vector<Entry> entries_;
  // Positions in entries_.
  std::unordered_map<std::string, size_t> by_name_;
};

// The content of a file with these tensors, in this order, and what else its header says. Fails for element types that the format
// lacks.
Result<std::string> FormatSafetensors(
    const std::vector<std::pair<std::string, at::Tensor>>& tensors,
    const std::map<std::string, std::string>& metadata = {});

// The parameters of a model from a file. Fails with all names that are missing, that are not the model's, and that have another shape
// or an element type that the master weights cannot hold exactly. The model must outlive the source.
Result<ParamSource> ParamsFromFile(const Model& model, const std::string& path);

}  // namespace heddle
