#include "heddle/run/hf/export_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ranges>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "heddle/core/base/file.h"
#include "heddle/run/checkpoint/disk.h"

namespace heddle::run {
namespace {

constexpr std::string_view kStaging = ".heddle-export";

bool AllDigits(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string HfShardName(size_t number, size_t count) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", number, count);
}

bool IsHfShardName(std::string_view name) {
  constexpr std::string_view kForm = "model-00000-of-00000.safetensors";
  return name.size() == kForm.size() && name.starts_with("model-") &&
         AllDigits(name.substr(6, 5)) && name.substr(11, 4) == "-of-" &&
         AllDigits(name.substr(15, 5)) && name.ends_with(".safetensors");
}

Result<ExportFolder> ExportFolder::Open(const std::string& path) {
  HEDDLE_RETURN_IF_ERROR(MakeDirectories(path));
  int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return SystemError(Diag::kFileWrite, path, "open");
  ExportFolder folder(path, fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    // The other process owns the staging folder.
    ::close(std::exchange(folder.fd_, -1));
    return FileError(
        Diag::kFileWrite, path,
        "another process exports into this folder; wait for it, or give another folder");
  }
  // Left over from an export that was killed.
  HEDDLE_RETURN_IF_ERROR(RemoveTree(folder.PathOf("")));
  HEDDLE_RETURN_IF_ERROR(MakeDirectories(fmt::format("{}/{}", path, kStaging)));
  return folder;
}

ExportFolder::ExportFolder(ExportFolder&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

ExportFolder::~ExportFolder() {
  if (fd_ < 0) return;
  (void)RemoveTree(PathOf(""));
  ::close(fd_);
}

std::string ExportFolder::PathOf(std::string_view name) const {
  return fmt::format("{}/{}/{}", path_, kStaging, name);
}

Status ExportFolder::Commit(const std::vector<std::string>& names) {
  HEDDLE_TRY(std::vector<std::string> old, NamesIn(path_));
  // Removes an index first, then a single file, then shards. A folder with an index and a single
  // file mixes two exports and does not load; neither does it without the index.
  for (const std::string& name : old | std::views::reverse) {
    if (name != kHfIndex && name != kHfWhole && !IsHfShardName(name)) continue;
    std::string path = fmt::format("{}/{}", path_, name);
    if (::unlink(path.c_str()) != 0) return SystemError(Diag::kFileWrite, path, "remove");
  }
  for (const std::string& name : names) {
    std::string path = fmt::format("{}/{}", path_, name);
    if (std::rename(PathOf(name).c_str(), path.c_str()) != 0)
      return SystemError(Diag::kFileWrite, path, "write");
  }
  return Done{};
}

}  // namespace heddle::run
