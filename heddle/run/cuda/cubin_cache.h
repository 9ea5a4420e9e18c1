// CubinCache: stores machine code of kernels in files, by the content of their source.
//
// A file is written under a temporary name and renamed, so processes can share a folder. A damaged
// file, or one with other content, counts as absent. Without a folder, or if it is not writable,
// kernels are compiled each time.
#pragma once

#include <functional>
#include <string>

#include "heddle/run/cuda/nvrtc.h"

namespace heddle::run {

class CubinCache {
 public:
  // An empty `folder` turns the cache off.
  explicit CubinCache(std::string folder) : folder_(std::move(folder)) {}

  // Returns `$XDG_CACHE_HOME/heddle/kernels`, or a folder below `$HOME/.cache`; empty if neither is
  // set.
  static std::string DefaultFolder();

  // Returns the machine code of `source`: from its file, or from `compile`, which is NVRTC of
  // `version`.
  using Compiler = std::function<Result<std::string>(const CudaSource&)>;
  Result<std::string> Get(const CudaSource& source, std::string_view version,
                          const Compiler& compile) const;

 private:
  std::string folder_;
};

}  // namespace heddle::run
