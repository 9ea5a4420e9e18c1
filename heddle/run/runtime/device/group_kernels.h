// Kernels of groups of nodes (heddle/core/kernel/groups.h) on a GPU.
#pragma once

#include <memory>

#include "heddle/run/runtime/device/kernel_backend.h"
#include "heddle/run/runtime/device/kernel_device.h"

namespace heddle::run {

// Compile kernels. Fail with the messages of the compiler. `device` must outlive the kernel.
Result<std::unique_ptr<GroupKernel>> MakeProgramKernel(KernelDevice& device,
                                                       const KernelProgram& program);
Result<std::unique_ptr<GroupKernel>> MakeNormWeightKernel(KernelDevice& device, int64_t width,
                                                          DType dtype);
Result<std::unique_ptr<GroupKernel>> MakeCastsKernel(KernelDevice& device, DType from);
Result<std::unique_ptr<GroupKernel>> MakeSquaredNormKernel(KernelDevice& device);

}  // namespace heddle::run
