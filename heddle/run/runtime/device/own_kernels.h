// Kernels of Heddle's own on a GPU: compiled by NVRTC for it, and proved against ATen before use.
//
// A proof runs the kernel and ATen's ops on random and on special values, when a graph is compiled,
// and compares every bit. So another libtorch, driver or GPU can make a step slower, not different.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "heddle/run/runtime/device/kernel_backend.h"

namespace heddle::run {

// `notice` is told of kernels that are not used, and why. Fails where there is no GPU or no NVRTC.
Result<std::unique_ptr<Kernels>> OpenKernels(c10::Device device,
                                             std::function<void(const std::string& line)> notice);

}  // namespace heddle::run
