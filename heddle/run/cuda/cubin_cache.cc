#include "heddle/run/cuda/cubin_cache.h"

namespace heddle::run {
namespace {

// Everything that the machine code depends on. Sizes separate the parts, so that different parts
// never give the same key.
std::string KeyOf(const CudaSource& source, std::string_view version) {
  std::string key = fmt::format("nvrtc {}\narchitecture {}\n", version, source.architecture);
  for (const std::string& option : source.options) key += fmt::format("option {}\n", option);
  return key + fmt::format("text {}\n{}", source.text.size(), source.text);
}

}  // namespace

Result<std::string> CubinCache::Get(const CudaSource& source, std::string_view version,
                                    const Compiler& compile) const {
  std::string key = KeyOf(source, version);
  if (std::optional<std::string> stored = files_.Find(key)) return *std::move(stored);
  HEDDLE_TRY(std::string cubin, compile(source));
  // The run needs no cache, so an error here is ignored.
  (void)files_.Store(key, cubin);
  return cubin;
}

}  // namespace heddle::run
