// Whole numbers, divided up.
#pragma once

#include <cstdint>

namespace heddle {

// Of numbers that are not negative; a + b need not fit into 64 bits.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0); }

}  // namespace heddle
