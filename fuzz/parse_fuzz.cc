#include <cstdint>

#include "fuzz/exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  heddle::Exercise(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
