// WeightLoadErrors: collects the errors of tensors that do not fit a model, up to a limit.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "heddle/run/train/safetensors.h"

namespace heddle::run {

class WeightLoadErrors {
 public:
  // `path` is the file that errors name.
  explicit WeightLoadErrors(std::string path) : path_(std::move(path)) {}

  void Add(std::string_view what);
  // Checks that a tensor exists (null: missing), has this shape, and has an element type that
  // `master` can represent exactly.
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
