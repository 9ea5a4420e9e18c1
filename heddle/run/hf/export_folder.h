// ExportFolder: replaces an export in a Hugging Face folder as a whole.
//
// New files are written into a hidden folder inside. Commit removes the old export's entry file
// (its index, or its only file of weights), then its other files, moves the new files in, and the
// new entry file last. A kill at any instant leaves the old export, the new one, or a folder
// without an entry file, which neither Heddle nor transformers loads. Files that are not part of an
// export stay.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/base/result.h"

namespace heddle::run {

constexpr std::string_view kHfConfig = "config.json";
constexpr std::string_view kHfWhole = "model.safetensors";
constexpr std::string_view kHfIndex = "model.safetensors.index.json";

// `model-00002-of-00005.safetensors`.
std::string HfShardName(size_t number, size_t count);
bool IsHfShardName(std::string_view name);

class ExportFolder {
 public:
  // Makes the folder and those above it. Fails if another process exports into it.
  static Result<ExportFolder> Open(const std::string& path);
  // Removes what was not committed.
  ~ExportFolder();
  ExportFolder(ExportFolder&& other) noexcept;
  ExportFolder& operator=(ExportFolder&&) = delete;

  // Where to write a new file.
  std::string PathOf(std::string_view name) const;
  // Puts the written files in place of the old export. The last one is the entry file.
  Status Commit(const std::vector<std::string>& names);

 private:
  ExportFolder(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  // Descriptor of the folder, locked; -1 after a move.
  int fd_;
};

}  // namespace heddle::run
