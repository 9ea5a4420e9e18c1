// CubinCache: stores machine code of kernels in files, by the content of their source.
//
// Without a folder, or if it is not writable, kernels are compiled each time.
#pragma once

#include <functional>
#include <string>

#include "heddle/run/cuda/file_cache.h"
#include "heddle/run/cuda/nvrtc.h"

namespace heddle::run {

class CubinCache {
 public:
  explicit CubinCache(std::string folder) : files_(std::move(folder), "cubin") {}

  // Returns the machine code of `source`: from its file, or from `compile`, which is NVRTC of
  // `version`.
  using Compiler = std::function<Result<std::string>(const CudaSource&)>;
  Result<std::string> Get(const CudaSource& source, std::string_view version,
                          const Compiler& compile) const;

 private:
  FileCache files_;
};

}  // namespace heddle::run
