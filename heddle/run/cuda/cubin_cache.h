// CubinCache: machine code of kernels in files, by the content of their source.
//
// A file is written under a temporary name and renamed, so processes can share a folder. A file
// that is damaged, or of other content, counts as absent. Without a folder, or where it cannot be
// written, kernels are compiled each time.
#pragma once

#include <functional>
#include <string>

#include "heddle/run/cuda/nvrtc.h"

namespace heddle::run {

class CubinCache {
 public:
  // An empty `folder` keeps nothing.
  explicit CubinCache(std::string folder) : folder_(std::move(folder)) {}

  // `$XDG_CACHE_HOME/heddle/kernels`, or below `$HOME/.cache`; empty if neither is set.
  static std::string DefaultFolder();

  // The machine code of `source`: from its file, or from `compile`, which is NVRTC of `version`.
  using Compiler = std::function<Result<std::string>(const CudaSource&)>;
  Result<std::string> Get(const CudaSource& source, std::string_view version,
                          const Compiler& compile) const;

 private:
  std::string folder_;
};

}  // namespace heddle::run
