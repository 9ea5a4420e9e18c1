#include "heddle/run/cuda/cubin_cache.h"

#include <cstdlib>

#include "heddle/core/base/file.h"
#include "heddle/core/base/hash.h"

namespace heddle::run {
namespace {

// Everything that the machine code depends on. Sizes separate the parts, so that different parts
// never give the same key.
std::string KeyOf(const CudaSource& source, std::string_view version) {
  std::string key = fmt::format("nvrtc {}\narchitecture {}\n", version, source.architecture);
  for (const std::string& option : source.options) key += fmt::format("option {}\n", option);
  return key + fmt::format("text {}\n{}", source.text.size(), source.text);
}

std::string HashOf(std::string_view bytes) {
  return Format(HashBytes128(bytes.data(), bytes.size()));
}

// The first line of a file: its format, and hashes of the key and of the rest.
std::string HeaderOf(std::string_view key_hash, std::string_view cubin) {
  return fmt::format("heddle cubin 1 {} {}\n", key_hash, HashOf(cubin));
}

}  // namespace

std::string CubinCache::DefaultFolder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return std::string(cache) + "/heddle/kernels";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return std::string(home) + "/.cache/heddle/kernels";
  return "";
}

Result<std::string> CubinCache::Get(const CudaSource& source, std::string_view version,
                                    const Compiler& compile) const {
  std::string hash = HashOf(KeyOf(source, version));
  std::string path = folder_ + "/" + hash + ".cubin";
  if (!folder_.empty()) {
    Result<std::string> file = ReadFile(path);
    if (file.ok()) {
      std::string_view text = *file;
      size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
      if (!text.empty() && text.substr(0, end) == HeaderOf(hash, text.substr(end)))
        return std::string(text.substr(end));
    }
  }
  HEDDLE_TRY(std::string cubin, compile(source));
  // The run needs no cache, so an error here is ignored.
  if (!folder_.empty() && MakeDirectories(folder_).ok())
    (void)WriteFile(path, HeaderOf(hash, cubin) + cubin);
  return cubin;
}

}  // namespace heddle::run
