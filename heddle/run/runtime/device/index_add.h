// aten.index_add with a kernel that has the bits of ATen's deterministic one, and reads and writes
// each row once.
#pragma once

#include <memory>

#include "heddle/run/runtime/device/kernel_backend.h"
#include "heddle/run/runtime/device/kernel_device.h"

namespace heddle::run {

// Fails with the messages of the compiler. `device` must outlive the kernel.
Result<std::unique_ptr<GroupKernel>> MakeIndexAddKernel(KernelDevice& device,
                                                        const IndexAddRun& add);
// Whether the kernel has the bits of ATen on this device.
bool ProvesIndexAdd(const GroupKernel& kernel, const IndexAddRun& add, c10::Device device);

// Runs an aten.index_add with a kernel, or with ATen if the layout of a tensor is not supported.
Result<std::unique_ptr<Step>> MakeIndexAddStep(const RunPlan& plan, NodeId node,
                                               const IndexAddRun& add,
                                               std::shared_ptr<const GroupKernel> kernel);

}  // namespace heddle::run
