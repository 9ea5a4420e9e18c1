// How much of a long random test to run.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace heddle {

// A part in `make test`; all of it in `make soak`, which sets HEDDLE_SOAK.
inline uint32_t Extent(uint32_t part, uint32_t all) {
  return std::getenv("HEDDLE_SOAK") != nullptr ? all : part;
}

}  // namespace heddle
