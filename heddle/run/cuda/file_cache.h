// FileCache: stores bytes in files of a folder, by a key.
//
// A file is written under a temporary name and renamed, so processes can share a folder. A damaged
// file, or one with another key, counts as absent.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "heddle/core/base/result.h"

namespace heddle::run {

class FileCache {
 public:
  // `kind` is the ending of the files. An empty `folder` turns the cache off.
  FileCache(std::string folder, std::string kind)
      : folder_(std::move(folder)), kind_(std::move(kind)) {}

  // Returns `$XDG_CACHE_HOME/heddle/kernels`, or a folder below `$HOME/.cache`; empty if neither is
  // set.
  static std::string DefaultFolder();

  // Returns the stored bytes, if any.
  std::optional<std::string> Find(std::string_view key) const;
  // Fails if the folder is not writable, or empty.
  Status Store(std::string_view key, std::string_view bytes) const;

 private:
  std::string PathOf(std::string_view key_hash) const;
  // The first line of a file: its kind, and hashes of the key and of the bytes.
  std::string HeaderOf(std::string_view key_hash, std::string_view bytes) const;

  std::string folder_;
  std::string kind_;
};

}  // namespace heddle::run
