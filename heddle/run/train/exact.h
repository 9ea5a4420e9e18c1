// Exact mode: settings of this process that give two runs of a job the same bits.
#pragma once

#include <string_view>

#include <c10/core/Device.h>

namespace heddle::run {

// Turns exact mode on. Call it at the start of the process, before any computation. On a CPU it
// sets one thread and turns oneDNN off. (Without bf16 instructions, oneDNN's first bf16 product
// fails internally and turns oneDNN off from then on, so bits would depend on earlier work.) On a
// GPU it also selects deterministic kernels and full f32 products.
void MakeExact(c10::DeviceType device = c10::kCPU);

// Describes exact mode for people.
std::string_view ExactMode(c10::DeviceType device);

}  // namespace heddle::run
