// Exact mode: what has to be set in this process so that two runs of one job have the same bits.
#pragma once

#include <string_view>

#include <c10/core/Device.h>

namespace heddle::run {

// One thread, and oneDNN off: on a CPU without bf16 instructions its first matrix product in bf16 fails inside and switches it off
// from then on, so that bits would depend on what ran before. On a GPU also kernels that add in one order only, and full products
// of f32. At the start of a process, before it computes anything there.
void MakeExact(c10::DeviceType device = c10::kCPU);

// What it does, for people.
std::string_view ExactMode(c10::DeviceType device);

}  // namespace heddle::run
