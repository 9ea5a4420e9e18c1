#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "fuzz/exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  heddle::Exercised done = heddle::Exercise(std::string(reinterpret_cast<const char*>(data), size));
  if (!done.problem.empty()) {
    std::fputs(done.problem.c_str(), stderr);
    std::abort();
  }
  return 0;
}
