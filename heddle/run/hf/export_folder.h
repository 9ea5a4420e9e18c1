// ExportFolder: replaces the export in a Hugging Face folder as a whole.
//
// New files are written into a hidden subfolder. Commit removes the entry file of the old export
// (its index, or its only file of weights), then its other files. It moves the new files in, and
// the new entry file last. After a kill at any time the folder has the old export, the new one, or
// no entry file; neither Heddle nor transformers loads it then. Files that are not part of an
// export stay.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/base/result.h"

namespace heddle::run {

constexpr std::string_view kHfConfig = "config.json";
constexpr std::string_view kHfWhole = "model.safetensors";
constexpr std::string_view kHfIndex = "model.safetensors.index.json";

// Returns a name such as `model-00002-of-00005.safetensors`.
std::string HfShardName(size_t number, size_t count);
bool IsHfShardName(std::string_view name);

class ExportFolder {
 public:
  // Creates missing folders. Fails if another process exports into the folder.
  static Result<ExportFolder> Open(const std::string& path);
  // Removes files that were not committed.
  ~ExportFolder();
  ExportFolder(ExportFolder&& other) noexcept;
  ExportFolder& operator=(ExportFolder&&) = delete;

  // Returns the path for writing a new file.
  std::string PathOf(std::string_view name) const;
  // Replaces the old export by the written files. The last name is the entry file.
  Status Commit(const std::vector<std::string>& names);

 private:
  ExportFolder(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  // Locked descriptor of the folder; -1 after a move.
  int fd_;
};

}  // namespace heddle::run
