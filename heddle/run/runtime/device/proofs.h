// Whether kernels have the bits of ATen on this device, for random and special numbers.
#pragma once

#include "heddle/run/runtime/device/kernel_backend.h"

namespace heddle::run {

// Rows with infinities, NaN, ties, denormals, large numbers, and ignored labels.
bool ProvesLoss(const LossKernel& kernel, const LossRun& run, c10::Device device);
bool ProvesAdamW(const AdamWKernel& kernel, const AdamWRun& run, c10::Device device);
bool ProvesSquaredNorm(const GroupKernel& kernel, c10::Device device);

}  // namespace heddle::run
