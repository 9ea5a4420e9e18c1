#include "heddle/run/cuda/file_cache.h"

#include <algorithm>
#include <cstdlib>

#include "heddle/core/base/file.h"
#include "heddle/core/base/hash.h"

namespace heddle::run {
namespace {

std::string HashText(std::string_view bytes) {
  return Format(HashBytes128(bytes.data(), bytes.size()));
}

}  // namespace

std::string FileCache::DefaultFolder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return std::string(cache) + "/heddle/kernels";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return std::string(home) + "/.cache/heddle/kernels";
  return "";
}

std::string FileCache::PathOf(std::string_view key_hash) const {
  return fmt::format("{}/{}.{}", folder_, key_hash, kind_);
}

std::string FileCache::HeaderOf(std::string_view key_hash, std::string_view bytes) const {
  return fmt::format("heddle {} 1 {} {}\n", kind_, key_hash, HashText(bytes));
}

std::optional<std::string> FileCache::Find(std::string_view key) const {
  if (folder_.empty()) return std::nullopt;
  std::string hash = HashText(key);
  Result<std::string> file = ReadFile(PathOf(hash));
  if (!file.ok() || file->empty()) return std::nullopt;
  std::string_view text = *file;
  size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
  if (text.substr(0, end) != HeaderOf(hash, text.substr(end))) return std::nullopt;
  return std::string(text.substr(end));
}

Status FileCache::Store(std::string_view key, std::string_view bytes) const {
  if (folder_.empty())
    return Error(Diag::kFileWrite, "no cache folder: neither XDG_CACHE_HOME nor HOME is set");
  HEDDLE_RETURN_IF_ERROR(MakeDirectories(folder_));
  std::string hash = HashText(key);
  return WriteFile(PathOf(hash), HeaderOf(hash, bytes) + std::string(bytes));
}

}  // namespace heddle::run
