// Exact mode: what has to be set in this process so that two runs of one job have the same bits.
#pragma once

#include <string_view>

namespace heddle {

// One thread, and oneDNN off: on a CPU without bf16 instructions its first matrix product in bf16 fails inside and switches it off
// from then on, so that bits would depend on what ran before. At the start of a process.
void MakeExact();

// What it does, for people.
inline constexpr std::string_view kExactMode = "exact mode: oneDNN off, one thread";

}  // namespace heddle
