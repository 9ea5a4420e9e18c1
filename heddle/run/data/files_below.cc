#include "heddle/run/data/files_below.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <dirent.h>
#include <sys/stat.h>

namespace heddle::run {
namespace {

Failure CannotRead(const std::string& path) {
  return Error(Diag::kFileRead, "cannot read `{}`: {}", path, std::strerror(errno));
}

// Deeper than real folders, and shallow enough for the stack.
constexpr int kMaxDepth = 100;

Status AddFiles(const std::string& folder, int depth, std::vector<std::string>& files) {
  if (depth > kMaxDepth)
    return Error(Diag::kFileRead, "`{}` is more than {} folders deep", folder, kMaxDepth);
  DIR* stream = ::opendir(folder.c_str());
  if (stream == nullptr) return CannotRead(folder);
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(stream)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  ::closedir(stream);
  for (const std::string& name : names) {
    std::string path = (folder.ends_with('/') ? folder : folder + "/") + name;
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0) return CannotRead(path);
    bool link = S_ISLNK(info.st_mode);
    if (link && ::stat(path.c_str(), &info) != 0) return CannotRead(path);
    if (S_ISDIR(info.st_mode)) {
      if (!link) HEDDLE_RETURN_IF_ERROR(AddFiles(path, depth + 1, files));
    } else if (S_ISREG(info.st_mode)) {
      files.push_back(path);
    } else {
      return Error(Diag::kFileRead, "`{}` is not a regular file", path);
    }
  }
  return Done{};
}

}  // namespace

Result<std::vector<std::string>> FilesBelow(const std::string& folder) {
  std::vector<std::string> files;
  HEDDLE_RETURN_IF_ERROR(AddFiles(folder, 0, files));
  std::ranges::sort(files);
  return files;
}

bool IsFile(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace heddle::run
