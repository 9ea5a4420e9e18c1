// What is wrong with tensors of files for a model, most of it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "heddle/run/train/safetensors.h"

namespace heddle::run {

class Misfits {
 public:
  // `path` is what messages are about.
  explicit Misfits(std::string path) : path_(std::move(path)) {}

  void Add(std::string_view what);
  // A tensor that must be there (null: it is not), with this shape, and of numbers that those of type `master` can hold exactly.
  void Check(const std::string& name, const SafetensorsFile::Entry* entry,
             std::span<const int64_t> shape, DType master);
  bool empty() const { return problems_.empty(); }
  Failure Take() { return {std::move(problems_)}; }

 private:
  std::string path_;
  size_t count_ = 0;
  Diagnostics problems_;
};

}  // namespace heddle::run
