// Heddle's own kernels on a GPU: compiled by NVRTC, and compared with ATen before use.
//
// When a graph is compiled, a proof runs the kernel and ATen's ops on random and special values,
// and compares every bit. So another libtorch, driver or GPU can make a step slower, but not
// different.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "heddle/run/runtime/device/kernel_backend.h"

namespace heddle::run {

// Calls `notice` for each kernel that is not used, with the reason. Fails without a GPU or NVRTC.
Result<std::unique_ptr<Kernels>> OpenKernels(c10::Device device,
                                             std::function<void(const std::string& line)> notice);

}  // namespace heddle::run
