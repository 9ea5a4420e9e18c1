// Division of whole numbers.
#pragma once

#include <cstdint>

namespace heddle {

// Rounds up. Requires a >= 0 and b > 0; a + b may exceed 64 bits.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0); }

}  // namespace heddle
